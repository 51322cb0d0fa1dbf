"""Cuts a JSON trace into decoded batches of events, without ever holding the whole text.

The text is searched for a place where one event ends and the next begins, and what lies before it is decoded
as an array of its own. A place that looks like such a cut but lies inside a string or an argument leaves the
array unbalanced, so decoding fails and an exact scan finds the true one: a successful decode is the proof.
What surrounds ``traceEvents`` is kept apart as the trace's metadata.
"""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Iterator, Mapping

import msgspec

from conccl.core.errors import TraceError
from conccl.core.units import MIB, format_bytes
from conccl.traces.event_decoder import EventDecoder
from conccl.traces.events import CATEGORIES, Batch, Category, Event
from conccl.traces.metadata import NESTING, TOKEN, Metadata, depth_at, parse_metadata
from conccl.traces.odd_events import read_odd_event
from conccl.traces.sifting import Sifter
from conccl.traces.unpacking import BLOCK, Bytes

EVENT_LIMIT = 64 * MIB
"""No single event, and no metadata before or after the events, may be longer: there the file is malformed."""

_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_TAIL = 8 << 10
_ARRAY_ENDED = re.compile(r"trailing characters \(byte (\d+)\)")
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*')
_OPENING, _CLOSING = b"{]"
_SPACE = b" \t\r\n\xef\xbb\xbf"  # and a byte-order mark


class EventStream:
    """The events of one trace in batches; afterwards its metadata and what was wrong with it.

    Life: iterate once to the end, then read ``metadata``, ``truncated`` and ``odd_events``.
    """

    def __init__(
        self, source: Bytes, /, *, path: str, block: int = BLOCK, wanted: Mapping[str, Category] = CATEGORIES
    ) -> None:
        self.metadata = Metadata()
        self.truncated = ""
        """Empty, or where and how the file broke off; what came before was given."""
        self.odd_events = 0
        """Events that could not be read; they are left out."""
        self.first_odd_place = ""
        self._source = source
        self._path = path
        self._block = block
        self._decode = EventDecoder(wanted)
        self._sift = Sifter() if wanted is CATEGORIES else None
        self._text = b"["  # what is not decoded yet, behind a bracket that makes it an array
        self._offset = -1  # of that text in the file
        self._at_end = False
        self._head = b""

    @property
    def begun(self) -> int:
        """GPU rows that are given as a begin and an end, which is not read."""
        return self._decode.begun

    def __iter__(self) -> Iterator[Batch]:
        self._find_events()
        while True:
            batch, used, ended = self._next_batch()
            if batch:
                yield batch
            del batch  # its events refer to the text
            self._drop(used)
            if ended:
                self._read_metadata()
                return
            if self._at_end:
                self._note_truncation()
                self.metadata = parse_metadata(self._head + b"[]}") or Metadata()
                return

    def _fill(self, nbytes: int) -> None:
        """Append the next bytes; at the end of the file, say so."""
        block = self._source.read(nbytes)
        self._at_end = self._at_end or not block
        self._text += block

    def _drop(self, end: int) -> None:
        """Forget the text up to here."""
        self._offset += end - 1
        self._text = b"[" + self._text[end:]

    def _error(self, problem: str, remedy: str) -> TraceError:
        place = f"byte {max(self._offset, 0)}"
        return TraceError(path=self._path, place=place, problem=problem, remedy=remedy)

    def _find_events(self) -> None:
        """Leave the text just behind the bracket that opens the events."""
        start = b""
        while not start and not self._at_end and self._offset <= EVENT_LIMIT:
            self._drop(len(self._text))  # spaces
            self._fill(self._block)
            start = self._text[1:].lstrip(_SPACE)[:1]
        if not start:
            if self._source.damage:
                raise self._broken_off()
            raise self._error(*(_EMPTY if self._at_end else _NOT_JSON))
        if start == b"[":  # Chrome's bare array of events
            self._drop(self._text.index(b"[", 1) + 1)
            return
        if start != b"{":
            raise self._error(*_NOT_JSON)
        while (bracket := _events_bracket(self._text[1:])) is None:
            if self._at_end:
                raise self._without_events()
            if len(self._text) > EVENT_LIMIT:
                raise self._error(
                    f"no traceEvents within the first {format_bytes(EVENT_LIMIT)}",
                    "Give a Kineto (Chrome) trace.",
                )
            self._fill(max(self._block, len(self._text)))
        self._head = self._text[1 : bracket + 1].lstrip(_SPACE)
        self._drop(bracket + 2)

    def _broken_off(self) -> TraceError:
        return self._error(f"truncated before its first event: {self._source.damage}", "Copy it again.")

    def _without_events(self) -> TraceError:
        if self._source.damage:
            return self._broken_off()
        if parse_metadata(self._text[1:]) is None:
            return self._error("no JSON, or truncated before its first event", "Give a complete JSON trace.")
        return self._error(
            "JSON without traceEvents", "Give a Kineto (Chrome) trace, as torch.profiler writes."
        )

    def _next_batch(self) -> tuple[Batch, int, bool]:
        """Events from the text, where they end in it, and whether the array of events has ended there."""
        self._fill(max(self._block, len(self._text)))
        if (sifted := self._sifted()) is not None:
            return *sifted, False
        cut = len(self._text) if self._at_end else _last_boundary(self._text)
        if cut:
            array = b"".join((memoryview(self._text)[:cut], b"]"))
            try:
                return self._decode(array), self._behind_comma(cut), False
            except (msgspec.MsgspecError, RecursionError) as error:
                if ended := _ARRAY_ENDED.search(str(error)):
                    with contextlib.suppress(msgspec.MsgspecError, RecursionError, ValueError):
                        # The place that it tells lies behind what it met.
                        bracket = array.rindex(b"]", 0, int(ended[1]) - 1)
                        return self._decode(array[: bracket + 1]), bracket, True
        return self._careful_batch()

    def _sifted(self) -> tuple[Batch, int] | None:
        """The events but the last by way of the sifter, and where the last begins; None: it cannot tell."""
        found = None if self._sift is None or self._at_end else self._sift(self._text)
        if found is None:
            return None
        try:
            return self._decode.sifted(found[0]), found[1]
        except (msgspec.MsgspecError, RecursionError):
            return None

    def _careful_batch(self) -> tuple[Batch, int, bool]:
        """The complete events in the text one by one, those that cannot be read left out."""
        text = self._text
        events: list[Event] = []
        end = 1
        for start, stop, what in _scan(text, 1):
            end = stop
            if what is _Piece.ARRAY_END:
                return self._decode.batch_of(events), end, True
            event = read_odd_event(text[start:stop]) if what is _Piece.OBJECT else None
            if event is None:
                self._note_odd(start)
            else:
                events.append(event)
        self._at_end = self._at_end or (end == 1 and len(text) > EVENT_LIMIT)
        return self._decode.batch_of(events), self._behind_comma(end), False

    def _behind_comma(self, cut: int) -> int:
        """The place behind the comma that follows an event, if it is there."""
        behind = _COMMA.match(self._text, cut)
        return behind.end() if behind and cut > 1 else cut

    def _note_odd(self, start: int) -> None:
        self.odd_events += 1
        self.first_odd_place = self.first_odd_place or f"byte {self._offset + start}"

    def _read_metadata(self) -> None:
        if not self._head:
            return
        while not self._at_end and len(self._text) <= EVENT_LIMIT:
            self._fill(self._block)
        metadata = parse_metadata(self._head + self._text)
        if metadata is None:
            self._note_truncation()
            metadata = parse_metadata(self._head + b"[]}")
        self.metadata = metadata or Metadata()

    def _note_truncation(self) -> None:
        self.truncated = (
            self._source.damage or f"the JSON breaks off or is malformed at byte {max(self._offset, 0)}"
        )


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


class _Piece(enum.Enum):
    """What a careful look finds in the text of an array."""

    OBJECT = "an event"
    OTHER = "something that is no event"
    ARRAY_END = "the bracket that closes the array"


def _scan(text: bytes, start: int) -> Iterator[tuple[int, int, _Piece]]:
    """Start and end of each complete value of an array whose opening bracket lies before ``start``."""
    depth = 0
    begin = start
    for token in TOKEN.finditer(text, start):
        if token[0] == b'"':  # a string that has not ended yet
            return
        step = NESTING.get(token[0], 0)
        if depth == 0 and step == 1:
            begin = token.start()
        depth += step
        if depth < 0:
            yield token.start(), token.start(), _Piece.ARRAY_END
            return
        if depth == 0 and step == -1:
            yield begin, token.end(), _Piece.OBJECT if text[begin] == _OPENING else _Piece.OTHER
