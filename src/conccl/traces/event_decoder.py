"""Decodes JSON arrays of events into batches; what no one asks for becomes an empty shell.

msgspec picks an event's type by its ``cat``, so a category must be known before it can be skipped: the first
event of a new one stops the decoder, which learns it and starts the array again. Arrays with anything
unexpected are decoded by the general type.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

import msgspec

from conccl.traces.events import (
    CATEGORIES,
    GPU_WORK,
    SHAPES,
    Batch,
    Category,
    Event,
    GpuArguments,
    GpuEvent,
    LaunchArguments,
    LaunchEvent,
    Specific,
)
from conccl.traces.sifting import Sifted

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

    def __init__(self, wanted: Mapping[str, Category] = CATEGORIES, /) -> None:
        self.wanted = wanted
        """What is asked for, by category in lower case."""
        self.begun = 0
        """GPU rows that are given as a begin and an end (phases B and E), which is not read."""
        self._categories = _COMMON
        self._lacks_categories = False

    def __call__(self, text: Text, /) -> Batch:
        """The wanted events of a JSON array; raises msgspec's errors where the text is not such an array."""
        batch = self._by_category(text)
        return self.batch_of(_decode_general(text)) if batch is None else batch

    def sifted(self, parts: Sifted, /) -> Batch:
        """The same for sifted events; raises where they are not as their category has them."""
        batch: Batch = {}
        for category, text in parts.items():
            if category is None:
                for kind, events in self(text).items():
                    batch.setdefault(kind, []).extend(events)
            else:
                batch.setdefault(category, []).extend(_DECODERS[category](text))
        return batch

    def batch_of(self, events: Iterable[Event], /) -> Batch:
        """The wanted ones of general events, each as its category's type."""
        batch: Batch = {}
        for event in events:
            category = self.wanted.get(event.cat.lower())
            if category is Category.FLOW or (category is not None and event.ph == "X"):
                batch.setdefault(category, []).append(_specific(event, SHAPES[category]))
            self.begun += category in GPU_WORK and event.ph == "B"
        return batch

    def _by_category(self, text: Text) -> Batch | None:
        """The batch; None where only the general type can tell, or say where the text is wrong."""
        if self._lacks_categories:
            text = _with_categories(text)
        while len(self._categories) < _MOST_CATEGORIES:
            decoder, types = _decoder(self._categories, tuple(self.wanted.items()))
            try:
                return _batch(decoder.decode(text), types)
            except msgspec.ValidationError as error:
                new = _NEW_CATEGORY.search(str(error))
                if new is not None and new[1] not in self._categories:
                    self._categories |= {new[1]}
                elif "`cat`" in str(error) and not self._lacks_categories:
                    self._lacks_categories = True
                    text = _with_categories(text)
                else:
                    return None
            except (msgspec.DecodeError, RecursionError):
                return None
        return None


def _with_categories(text: Text) -> bytes:
    """The text with a category for those events that Kineto writes without: metadata, and instants of old.

    Quotation marks inside strings are escaped, so these are keys and values; in an argument the change does
    no harm, and an event that has a category elsewhere is then refused, for the general type to read.
    """
    text = bytes(text)
    for plain, categorised in _CATEGORISED:
        text = text.replace(plain, categorised)
    return text


_CATEGORISED = (
    (b'"ph": "M"', b'"ph": "M", "cat": "metadata"'),
    (b'"ph": "i", "s"', b'"ph": "i", "cat": "instant", "s"'),
)


_DECODERS = {
    category: msgspec.json.Decoder(list.__class_getitem__(shape)).decode for category, shape in SHAPES.items()
}
"""For events whose category is known."""

_decode_general = msgspec.json.Decoder(list[Event]).decode


@functools.cache
def _decoder(
    categories: frozenset[str], wanted: tuple[tuple[str, Category], ...]
) -> tuple[msgspec.json.Decoder[list[Any]], dict[type, Category]]:
    """A decoder that knows these categories, and which of its types stand for wanted ones."""
    by_name = dict(wanted)
    types = {}
    shells = []
    for number, name in enumerate(sorted(categories)):
        category = by_name.get(name.lower())
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
    by_type: dict[Any, list[Any]] = {}
    for kind, event in zip(map(type, events), events, strict=True):
        if kind in wanted:
            if kind in by_type:
                by_type[kind].append(event)
            else:
                by_type[kind] = [event]
    batch: Batch = {}
    for kind, found in by_type.items():
        batch.setdefault(wanted[kind], []).extend(found)
    return batch


def _specific(event: Event, shape: type[Specific]) -> Specific:
    fields = {field: getattr(event, field) for field in shape.__struct_fields__}
    if shape in _ARGUMENTS:
        try:
            fields["args"] = _ARGUMENTS[shape].decode(event.args)
        except (msgspec.MsgspecError, RecursionError):
            fields["args"] = None
    return shape(**fields)


_ARGUMENTS: dict[type, msgspec.json.Decoder[Any]] = {
    GpuEvent: msgspec.json.Decoder(GpuArguments | None),
    LaunchEvent: msgspec.json.Decoder(LaunchArguments | None),
}
