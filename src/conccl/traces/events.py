"""Events of a trace as they stand in the file: only the fields that are asked for, numbers as text.

msgspec skips what the types do not name, so an event of a megabyte of stack frames costs a scan. Times stay
text (`conccl.traces.times` reads them exactly) and arguments stay text until a row turns out to be wanted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

_NOTHING = msgspec.Raw(b"")
_NO_ARGUMENTS = msgspec.Raw(b"{}")

Arguments = TypeVar("Arguments")


class Event(msgspec.Struct, gc=False):
    """One entry of ``traceEvents``."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: msgspec.Raw = _NOTHING
    dur: msgspec.Raw = _NOTHING
    pid: Any = None
    tid: Any = None
    id: Any = None
    args: msgspec.Raw = _NO_ARGUMENTS


class GpuArguments(msgspec.Struct, gc=False):
    """What the reader uses of a GPU row's arguments."""

    device: Any = None
    stream: Any = None
    correlation: Any = -1
    external_id: Any = msgspec.field(default=-1, name="External id")
    old_external_id: Any = msgspec.field(default=-1, name="external id")
    grid: msgspec.Raw = _NOTHING
    block: msgspec.Raw = _NOTHING
    nbytes: Any = msgspec.field(default=0, name="bytes")
    graph_node: Any = msgspec.field(default=0, name="graph node id")
    from_device: Any = msgspec.field(default=None, name="fromDevice")
    to_device: Any = msgspec.field(default=None, name="toDevice")
    collective: Any = msgspec.field(default=None, name="Collective name")


class LaunchArguments(msgspec.Struct, gc=False):
    """What the reader uses of a runtime call's arguments."""

    correlation: Any = -1
    external_id: Any = msgspec.field(default=-1, name="External id")
    old_external_id: Any = msgspec.field(default=-1, name="external id")


class OpArguments(msgspec.Struct, gc=False):
    """What the reader uses of a host operator's arguments."""

    external_id: Any = msgspec.field(default=-1, name="External id")
    input_dims: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    input_types: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input type")


decode_events = msgspec.json.Decoder(list[Event]).decode
decode_gpu_arguments = msgspec.json.Decoder(list[GpuArguments]).decode
decode_launch_arguments = msgspec.json.Decoder(list[LaunchArguments]).decode
decode_op_arguments = msgspec.json.Decoder(list[OpArguments]).decode


def decode_each(
    texts: Sequence[bytes], decode: Callable[[bytes], list[Arguments]], nothing: type[Arguments], /
) -> list[Arguments]:
    """The arguments in each text; those that are no fitting object are as if they were empty."""
    try:
        return decode(b"[%b]" % b",".join(texts))
    except (msgspec.MsgspecError, RecursionError):
        return [_decode_one(text, decode, nothing) for text in texts]


def _decode_one(
    text: bytes, decode: Callable[[bytes], list[Arguments]], nothing: type[Arguments]
) -> Arguments:
    try:
        return decode(b"[%b]" % bytes(text))[0]
    except (msgspec.MsgspecError, RecursionError):
        return nothing()


_decode_event = msgspec.json.Decoder(Event).decode


def decode_odd_event(text: bytes, /) -> Event | None:
    """One event that the strict decoder refused, read leniently; None where it is no JSON object at all.

    Names that are not UTF-8 get replacement characters, NaN and Infinity stay visible as the text of a time,
    and a field of an unexpected type is taken as its text.
    """
    try:
        return _decode_event(text)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        fields = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return _event_of(fields) if isinstance(fields, dict) else None


def _event_of(fields: dict[str, Any]) -> Event | None:
    def text_of(key: str) -> str:
        value = fields.get(key, "")
        return _printable(value if isinstance(value, str) else json.dumps(value))

    def raw_of(key: str) -> msgspec.Raw:
        if key not in fields:
            return _NOTHING
        return msgspec.Raw(_printable(json.dumps(_finite(fields[key]))).encode())

    try:
        return Event(
            ph=text_of("ph"),
            cat=text_of("cat"),
            name=text_of("name"),
            ts=raw_of("ts"),
            dur=raw_of("dur"),
            pid=fields.get("pid"),
            tid=fields.get("tid"),
            id=fields.get("id"),
            args=raw_of("args") if "args" in fields else _NO_ARGUMENTS,
        )
    except RecursionError:
        return None


def _printable(text: str) -> str:
    """The text without lone surrogates, which no encoding can write."""
    return text.encode("utf-8", "replace").decode()


def _finite(value: Any) -> Any:
    """The value with NaN and Infinity as strings, so that it is strict JSON again."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value
