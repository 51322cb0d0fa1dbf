"""What metadata, labels and names say of a collective's call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from conccl.core.kinds import CollectiveKind
from conccl.traces.classify import collective_kind
from conccl.traces.described import Described, LabelDetails
from conccl.traces.dtypes import dtype_named
from conccl.traces.trace import CollectiveCall


def call_of_metadata(
    said: Described, /, *, groups: Mapping[str, tuple[int, ...]], kernel: str
) -> CollectiveCall:
    """The call that a row's arguments describe; the kernel's name helps where they leave the kind open."""
    group = None if said.group is None or said.group == "" else str(said.group)
    ranks = _ranks(said.group_ranks) or (groups.get(group) if group is not None else None)
    size = _count(said.group_size)
    if ranks is not None and size is not None and len(ranks) != size:
        ranks = None  # Kineto shortens long lists
    return CollectiveCall(
        kind=(collective_kind(said.name) if isinstance(said.name, str) else None) or collective_kind(kernel),
        group=group,
        group_ranks=ranks,
        group_size=size if size is not None else len(ranks) if ranks is not None else None,
        sequence=_count(said.sequence),
        dtype=dtype_named(said.dtype),
        in_elements=_count(said.in_elements),
        out_elements=_count(said.out_elements),
    )


def call_of_label(
    label: str, details: LabelDetails, /, *, groups: Mapping[str, tuple[int, ...]], kernel: str
) -> CollectiveCall:
    """The call that the label around a row's launch describes, by its name and its arguments."""
    if details.said.name is not None:
        return call_of_metadata(details.said, groups=groups, kernel=kernel)
    kind = collective_kind(label) or collective_kind(kernel)
    elements = _elements(_value(details.input_dims)) if kind in _SAME_SIZE else None
    types = _value(details.input_types)
    return CollectiveCall(
        kind=kind,
        group=None,
        group_ranks=None,
        group_size=None,
        sequence=None,
        dtype=dtype_named(types[0]) if isinstance(types, list) and types else None,
        in_elements=elements,
        out_elements=elements,
    )


def call_of_name(kernel: str, /) -> CollectiveCall | None:
    """What a kernel's name alone says; None where it does not say which collective."""
    kind = collective_kind(kernel)
    if kind is None:
        return None
    return CollectiveCall(
        kind=kind,
        group=None,
        group_ranks=None,
        group_size=None,
        sequence=None,
        dtype=None,
        in_elements=None,
        out_elements=None,
    )


_SAME_SIZE = {
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.BROADCAST,
    CollectiveKind.REDUCE,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.SEND,
    CollectiveKind.RECV,
}
"""Collectives whose first input is as large as their output, so that the input alone says the size."""


def _count(value: Any) -> int | None:
    """A number that is not negative, also where it is text."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < 1 << 62 else None


def _ranks(value: Any) -> tuple[int, ...] | None:
    """``[0, 1, 2]``, as a list or as text; None where it is shortened ("...") or something else."""
    if isinstance(value, str):
        if re.fullmatch(r"\s*\[[\d,\s]*\]\s*", value) is None:
            return None
        value = [int(number) for number in re.findall(r"\d{1,9}", value)]
    if not isinstance(value, list | tuple) or not all(isinstance(rank, int) for rank in value):
        return None
    return tuple(value) or None


def _value(text: bytes) -> Any:
    """The JSON value; None where there is none."""
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def _elements(dims: Any) -> int | None:
    """Elements of the first tensor in ``[[2, 3], ...]``."""
    first = dims[0] if isinstance(dims, list) and dims else None
    if isinstance(first, list) and first and isinstance(first[0], list):  # a list of tensors: the first
        first = first[0] if len(first) == 1 else None
    if not isinstance(first, list) or not first:
        return None
    product = 1
    for size in first:
        if not isinstance(size, int) or size < 0:
            return None
        product *= size
    return product if product < 1 << 62 else None
