"""Reads leniently an event that strict decoding refuses: not UTF-8, NaN, fields of unexpected types."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from conccl.traces.events import NO_ARGUMENTS, NOTHING, Event

_decode = msgspec.json.Decoder(Event).decode


def read_odd_event(text: bytes, /) -> Event | None:
    """The event; None where the text is no JSON object at all.

    Names that are not UTF-8 get replacement characters, NaN and Infinity become text, a field of an
    unexpected type is taken as its text.
    """
    try:
        return _decode(text)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        fields = json.loads(text.decode("utf-8", "replace"))
        return _event_of(fields) if isinstance(fields, dict) else None
    except (ValueError, RecursionError):
        return None


def _event_of(fields: dict[str, Any]) -> Event:
    return Event(
        ph=_text(fields.get("ph", "")),
        cat=_text(fields.get("cat", "")),
        name=_text(fields.get("name", "")),
        ts=_raw(fields["ts"]) if "ts" in fields else NOTHING,
        dur=_raw(fields["dur"]) if "dur" in fields else NOTHING,
        pid=fields.get("pid"),
        tid=fields.get("tid"),
        id=fields.get("id"),
        args=_raw(fields["args"]) if "args" in fields else NO_ARGUMENTS,
    )


def _text(value: Any) -> str:
    """The value as text that any encoding can write: no lone surrogates."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace").decode()


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(_finite(value)).encode())


def _finite(value: Any) -> Any:
    """The value with NaN and Infinity as strings and clean text, so that it is strict JSON."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not -_LARGEST <= value <= _LARGEST:
        return str(value)
    if isinstance(value, dict):
        return {_text(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


_LARGEST = 1.7976931348623157e308
"""Of a double: NaN and the infinities do not lie within."""
