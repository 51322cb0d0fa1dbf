"""Decodes JSON arrays of events into batches; what no one asks for becomes an empty shell.

msgspec picks an event's type by its ``cat``, so a category must be known before it can be skipped: the first
event of a new one stops the decoder, which learns it and starts the array again. Arrays with events that have
no ``cat``, or anything else unexpected, are decoded by the general type.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any, Union

import msgspec

from conccl.traces.events import (
    CATEGORIES,
    SHAPES,
    Batch,
    Category,
    Event,
    GpuArguments,
    GpuEvent,
    HostEvent,
    LaunchArguments,
    LaunchEvent,
)

Text = bytes | bytearray | memoryview

_NEW_CATEGORY = re.compile(r"Invalid value '(.*)' - at `\$\[\d+\]\.cat`", re.DOTALL)
_MOST_CATEGORIES = 60
"""A file with more kinds of events is no Kineto trace, and gets the general type."""

_COMMON = frozenset(
    {
        *CATEGORIES,
        *("Kernel", "Memcpy", "Memset", "Runtime", "Operator"),
        *(
            "ac2g",
            "async",
            "async_cpu_to_gpu",
            "fwdbwd",
            "cpu_instant_event",
            "python_function",
            "overhead",
            "Trace",
        ),
    }
)


class EventDecoder:
    """Decodes one file's arrays of events, learning its categories as it goes."""

    def __init__(self) -> None:
        self._categories = _COMMON
        self._lenient = False

    def __call__(self, text: Text, /) -> Batch:
        """The wanted events of a JSON array; raises msgspec's errors where the text is not such an array."""
        while not self._lenient and len(self._categories) < _MOST_CATEGORIES:
            decoder, wanted = _decoder(self._categories)
            try:
                return _batch(decoder.decode(text), wanted)
            except msgspec.ValidationError as error:
                new = _NEW_CATEGORY.search(str(error))
                if new is None or new[1] in self._categories:
                    self._lenient = "`cat`" in str(error)
                    break
                self._categories |= {new[1]}
        return batch_of(_decode_general(text))


def batch_of(events: Iterable[Event], /) -> Batch:
    """The wanted ones of general events, each as its category's type."""
    batch: Batch = {}
    for event in events:
        category = CATEGORIES.get(event.cat) or CATEGORIES.get(event.cat.lower())
        if category is not None and event.ph == "X":
            batch.setdefault(category, []).append(_specific(event, SHAPES[category]))
    return batch


_decode_general = msgspec.json.Decoder(list[Event]).decode


@functools.cache
def _decoder(categories: frozenset[str]) -> tuple[msgspec.json.Decoder[list[Any]], dict[type, Category]]:
    """A decoder that knows these categories, and which of its types stand for wanted ones."""
    types = {}
    shells = []
    for number, name in enumerate(sorted(categories)):
        category = CATEGORIES.get(name.lower())
        if category is None:
            shells.append(msgspec.defstruct(f"Shell{number}", [], tag=name, tag_field="cat", gc=False))
        else:
            base = SHAPES[category]
            types[
                msgspec.defstruct(
                    f"{base.__name__}{number}", [], bases=(base,), tag=name, tag_field="cat", gc=False
                )
            ] = category
    return msgspec.json.Decoder(list[Union[(*types, *shells)]]), types  # type: ignore[valid-type]


def _batch(events: Sequence[Any], wanted: dict[Any, Category]) -> Batch:
    by_type: dict[Any, list[Any]] = {kind: [] for kind in wanted}
    for event in [event for event in events if event.__class__ in wanted]:
        if event.ph == "X":
            by_type[event.__class__].append(event)
    batch: Batch = {}
    for kind, found in by_type.items():
        if found:
            batch.setdefault(wanted[kind], []).extend(found)
    return batch


def _specific(
    event: Event, shape: type[GpuEvent] | type[LaunchEvent] | type[HostEvent]
) -> GpuEvent | LaunchEvent | HostEvent:
    fields = {field: getattr(event, field) for field in shape.__struct_fields__}
    if shape is not HostEvent:
        try:
            fields["args"] = _ARGUMENTS[shape].decode(event.args)
        except (msgspec.MsgspecError, RecursionError):
            fields["args"] = None
    return shape(**fields)


_ARGUMENTS: dict[type, msgspec.json.Decoder[Any]] = {
    GpuEvent: msgspec.json.Decoder(GpuArguments | None),
    LaunchEvent: msgspec.json.Decoder(LaunchArguments | None),
}
