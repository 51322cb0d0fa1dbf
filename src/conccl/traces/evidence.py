"""What metadata, labels and names say of a collective's call."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from conccl.core.ops import CollectiveKind, DType
from conccl.traces.classify import collective_kind
from conccl.traces.trace import CollectiveCall

# Names as c10 and Kineto write them (c10/core/ScalarType.h).
_DTYPES = {
    "bfloat16": DType.BF16,
    "c10::bfloat16": DType.BF16,
    "half": DType.FP16,
    "c10::half": DType.FP16,
    "float": DType.FP32,
    "double": DType.FP64,
    "float8_e4m3fn": DType.FP8_E4M3,
    "float8_e4m3fnuz": DType.FP8_E4M3,
    "c10::float8_e4m3fn": DType.FP8_E4M3,
    "float8_e5m2": DType.FP8_E5M2,
    "float8_e5m2fnuz": DType.FP8_E5M2,
    "c10::float8_e5m2": DType.FP8_E5M2,
    "char": DType.INT8,
    "signed char": DType.INT8,
    "byte": DType.UINT8,
    "unsigned char": DType.UINT8,
    "short": DType.INT16,
    "int": DType.INT32,
    "long": DType.INT64,
    "long int": DType.INT64,
    "bool": DType.BOOL,
}


def call_of_metadata(text: bytes, /, *, groups: Mapping[str, tuple[int, ...]], kernel: str) -> CollectiveCall:
    """The call that a row's arguments describe; the kernel's name helps where they leave the kind open."""
    arguments = _object(text)
    name = arguments.get("Collective name")
    group = _text(arguments.get("Process Group Name"))
    ranks = _ranks(arguments.get("Process Group Ranks")) or (groups.get(group) if group is not None else None)
    size = _count(arguments.get("Group size"))
    if ranks is not None and size is not None and len(ranks) != size:
        ranks = None  # Kineto shortens long lists
    return CollectiveCall(
        kind=(collective_kind(name) if isinstance(name, str) else None) or collective_kind(kernel),
        group=group,
        group_ranks=ranks,
        group_size=size if size is not None else len(ranks) if ranks is not None else None,
        sequence=_count(arguments.get("Seq")),
        dtype=_dtype(arguments.get("dtype")),
        in_elements=_count(arguments.get("In msg nelems")),
        out_elements=_count(arguments.get("Out msg nelems")),
    )


def call_of_label(
    label: str, text: bytes, /, *, groups: Mapping[str, tuple[int, ...]], kernel: str
) -> CollectiveCall:
    """The call that the label around a row's launch describes, by its name and its recorded inputs."""
    arguments = _object(text)
    if "Collective name" in arguments:
        return call_of_metadata(text, groups=groups, kernel=kernel)
    kind = collective_kind(label) or collective_kind(kernel)
    elements = _elements(arguments.get("Input Dims")) if kind in _SAME_SIZE else None
    types = arguments.get("Input type")
    return CollectiveCall(
        kind=kind,
        group=None,
        group_ranks=None,
        group_size=None,
        sequence=None,
        dtype=_dtype(types[0]) if isinstance(types, list) and types else None,
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


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


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
    if not isinstance(value, list) or not value or not all(isinstance(rank, int) for rank in value):
        return None
    return tuple(value)


def _dtype(value: Any) -> DType | None:
    return _DTYPES.get(value.lower()) if isinstance(value, str) else None


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
