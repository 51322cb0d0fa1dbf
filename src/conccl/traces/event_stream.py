"""Cuts a JSON trace into decoded batches of events, without ever holding the whole text.

The text is searched for a place where one event ends and the next begins, and what lies before it is decoded
as an array of its own. A place that looks like such a cut but lies inside a string or an argument leaves the
array unbalanced, so decoding fails and an exact scan finds the true one: a successful decode is the proof.
What surrounds ``traceEvents`` is kept apart as the trace's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from conccl.core.errors import TraceError
from conccl.core.units import MIB, format_bytes
from conccl.traces.events import Event, decode_events, decode_odd_event
from conccl.traces.metadata import NESTING, TOKEN, Metadata, depth_at, parse_metadata
from conccl.traces.unpacking import BLOCK, Bytes

EVENT_LIMIT = 64 * MIB
"""No single event, and no metadata before or after the events, may be longer: there the file is malformed."""

_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_TAIL = 64 << 10
_ARRAY_ENDED = re.compile(r"trailing characters \(byte (\d+)\)")
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*')
_SPACE = b" \t\r\n"


class EventStream:
    """The events of one trace in batches; afterwards its metadata and what was wrong with it.

    Life: iterate once to the end, then read ``metadata``, ``truncated`` and ``odd_events``.
    """

    def __init__(self, source: Bytes, /, *, path: str) -> None:
        self.metadata = Metadata()
        self.truncated = ""
        """Empty, or where and how the file broke off; what came before was given."""
        self.odd_events = 0
        """Events that could not be read; they are left out."""
        self.first_odd_place = ""
        self.batch_text = b""
        """The text that the batch just given was in."""
        self._source = source
        self._path = path
        self._buffer = b""
        self._offset = 0  # of the buffer in the file
        self._at_end = False
        self._head = b""

    def __iter__(self) -> Iterator[list[Event]]:
        self._find_events()
        while True:
            batch, used, ended = self._next_batch()
            if batch:
                self.batch_text = self._buffer
                yield batch
            self._drop(used)
            if ended:
                self._read_metadata()
                return
            if self._at_end:
                self._note_truncation()
                self.metadata = parse_metadata(self._head + b"[]}") or Metadata()
                return

    # -- the buffer

    def _fill(self, nbytes: int = BLOCK) -> None:
        """Append the next bytes; at the end of the file, say so."""
        block = self._source.read(nbytes)
        if block:
            self._buffer = self._buffer + block if self._buffer else block
        else:
            self._at_end = True

    def _drop(self, nbytes: int) -> None:
        self._buffer = self._buffer[nbytes:]
        self._offset += nbytes

    def _error(self, problem: str, remedy: str) -> TraceError:
        return TraceError(path=self._path, place=f"byte {self._offset}", problem=problem, remedy=remedy)

    # -- before the events

    def _find_events(self) -> None:
        """Leave the buffer just behind the bracket that opens the events."""
        self._fill(BLOCK // 16)
        start = self._buffer.lstrip(_SPACE + b"\xef\xbb\xbf")[:1]
        if not start:
            raise self._error(*_EMPTY) if self._at_end else self._error(*_NOT_JSON)
        if start == b"[":  # Chrome's bare array of events
            self._drop(self._buffer.index(b"[") + 1)
            return
        if start != b"{":
            raise self._error(*_NOT_JSON)
        while (bracket := _events_bracket(self._buffer)) is None:
            if self._at_end:
                raise self._without_events()
            if len(self._buffer) > EVENT_LIMIT:
                raise self._error(
                    f"no traceEvents within the first {format_bytes(EVENT_LIMIT)}",
                    "Give a Kineto (Chrome) trace.",
                )
            self._fill()
        self._head = self._buffer[:bracket]
        self._drop(bracket + 1)

    def _without_events(self) -> TraceError:
        damage = self._source.damage
        if damage:
            return self._error(f"truncated before its first event: {damage}", "Copy it again.")
        if parse_metadata(self._buffer) is None:
            return self._error("no JSON, or truncated before its first event", "Give a complete JSON trace.")
        return self._error(
            "JSON without traceEvents", "Give a Kineto (Chrome) trace, as torch.profiler writes."
        )

    # -- the events

    def _next_batch(self) -> tuple[list[Event], int, bool]:
        """Events from the buffer, the bytes that they took, and whether the array of events has ended."""
        self._fill(max(BLOCK, len(self._buffer)))
        cut = len(self._buffer) if self._at_end else _last_boundary(self._buffer)
        if cut:
            try:
                return decode_events(b"[%b]" % self._buffer[:cut]), self._behind_comma(cut), False
            except (msgspec.MsgspecError, RecursionError) as error:
                if ended := _ARRAY_ENDED.search(str(error)):
                    bracket = self._buffer.rindex(b"]", 0, int(ended[1]) - 1)
                    return decode_events(b"[%b]" % self._buffer[:bracket]), bracket, True
        return self._careful_batch()

    def _careful_batch(self) -> tuple[list[Event], int, bool]:
        """The complete events in the buffer one by one, those that cannot be read left out."""
        batch: list[Event] = []
        end = 0
        for start, end, kind in _scan(self._buffer):
            if kind == "end":
                return batch, end, True
            event = decode_odd_event(self._buffer[start:end]) if kind == "event" else None
            if event is None:
                self._note_odd(start)
            else:
                batch.append(event)
        self._at_end = self._at_end or (not end and len(self._buffer) > EVENT_LIMIT)
        return batch, self._behind_comma(end), False

    def _behind_comma(self, cut: int) -> int:
        """The place behind the comma that follows an event, if it is there."""
        behind = _COMMA.match(self._buffer, cut)
        return behind.end() if behind and cut else cut

    def _note_odd(self, start: int) -> None:
        self.odd_events += 1
        self.first_odd_place = self.first_odd_place or f"byte {self._offset + start}"

    # -- behind the events

    def _read_metadata(self) -> None:
        if not self._head:
            return
        while not self._at_end and len(self._buffer) <= EVENT_LIMIT:
            self._fill()
        metadata = parse_metadata(self._head + b"[" + self._buffer)
        if metadata is None:
            self._note_truncation()
            metadata = parse_metadata(self._head + b"[]}")
        self.metadata = metadata or Metadata()

    def _note_truncation(self) -> None:
        self.truncated = self._source.damage or f"the JSON breaks off or is malformed at byte {self._offset}"


_EMPTY = ("the file is empty", "Record it again; torch.profiler writes the file when it stops.")
_NOT_JSON = ("not JSON", "Give a Kineto trace: .json, .json.gz or .tar.gz.")
_COMMA = re.compile(rb"\s*,")


def _last_boundary(text: bytes) -> int:
    """The end of the event before the last place that looks like a boundary of events; 0: none."""
    for start in (max(0, len(text) - _TAIL), 0):
        places = [match.start() for match in _BOUNDARY.finditer(text, start)]
        if places:
            return places[-1] + 1
    return 0


def _events_bracket(text: bytes) -> int | None:
    """Where the array of the top level's ``traceEvents`` opens."""
    for key in _EVENTS_KEY.finditer(text):
        if text[key.end() : key.end() + 1] == b"[" and depth_at(text, key.start()) == 1:
            return key.end()
    return None


def _scan(text: bytes) -> Iterator[tuple[int, int, str]]:
    """Start and end of each complete value in an array's text: "event", "odd" or the array's "end"."""
    depth = 0
    start = 0
    for token in TOKEN.finditer(text):
        what = token[0]
        if what == b'"':  # a string that has not ended yet
            return
        step = NESTING.get(what, 0)
        if depth == 0 and step == 1:
            start = token.start()
        depth += step
        if depth < 0:
            yield token.start(), token.start(), "end"
            return
        if depth == 0 and step == -1:
            yield start, token.end(), "event" if text[start : start + 1] == b"{" else "odd"
