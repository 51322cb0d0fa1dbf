"""Picks the wanted events out of text as Kineto lays it out, so that the others are never decoded.

Most events of a trace say nothing that is asked for: host operators, arrows, calls that launch nothing. To
pass over them here takes less than a JSON parser needs to skip them. Kineto puts ``},``, a line break and
``  {`` between two events. Since a line break cannot stand inside a JSON string, and an array of objects
inside an event must begin with a brace behind a bracket or a comma, it can be told for certain whether
these are all the places where events of the text begin. Where it cannot, nothing is picked; and an event
that does not begin as Kineto writes it is never passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Mask
from conccl.traces.events import Category
from conccl.traces.host_rows import LABELS_AMONG_OPS

Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.intp]

Sifted = dict[Category | None, bytes]
"""JSON arrays of events of one category; under None those of which only the event itself tells."""

_WORD = 8
_BETWEEN = b"},\n  {"
_BEFORE = _WORD - 1
_HEAD = 64
"""Bytes before and behind an event's brace that are compared; the brace ends the first word."""

_BEFORE_AN_ELEMENT = np.isin(np.arange(256), tuple(b"[, \n\r\t"))
"""Of each octet whether a brace behind it may open an element of an array."""


class _Beginnings:
    """Texts with which events may begin, so far behind the brace, as the words that they fill."""

    def __init__(self, *texts: bytes, at: int = 0) -> None:
        self.first = 1 + at // _WORD
        self.words = [
            [_Word.of(text[place : place + _WORD]) for place in range(0, len(text), _WORD)] for text in texts
        ]


@dataclass(frozen=True, slots=True, eq=False)
class _Word:
    """A word of text, as a number; of a last piece that does not fill it the mask leaves what it fills."""

    number: np.uint64
    mask: np.uint64 | None

    @classmethod
    def of(cls, piece: bytes) -> _Word:
        return cls(_number(piece), None if len(piece) == _WORD else _number(b"\xff" * len(piece)))

    def equals(self, words: Words) -> Mask:
        found: Mask = (words if self.mask is None else words & self.mask) == self.number
        return found


def _number(piece: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(piece, "little"))


_COMPLETE = b'\n    "ph": "X", "cat": "'
_CATEGORY_AT = len(_COMPLETE)
_LAUNCH = b'cuda_runtime", "name": "'
_OPERATOR = b'cpu_op", "name":'

_IS_COMPLETE = _Beginnings(_COMPLETE)
_IS_UNWANTED = _Beginnings(
    *(b'\n    "ph": "%c"' % phase for phase in b"fsiMtC"),  # arrows, instants, metadata, counters
    _COMPLETE + b'python_function"',
)
_KINDS = {
    Category.KERNEL: _Beginnings(b'kernel",', at=_CATEGORY_AT),
    Category.MEMCPY: _Beginnings(b'gpu_memcpy", ', at=_CATEGORY_AT),
    Category.MEMSET: _Beginnings(b'gpu_memset", ', at=_CATEGORY_AT),
    Category.LABEL: _Beginnings(b'user_annotation", ', at=_CATEGORY_AT),
    Category.LAUNCH: _Beginnings(_LAUNCH, at=_CATEGORY_AT),
    Category.OP: _Beginnings(_OPERATOR, at=_CATEGORY_AT),
}
_IS_IDLE_CALL = _Beginnings(
    *(b"cudaEvent", b"cudaOccupancy", b"cudaFunc", b"cudaGetDevice", b"cudaGetLastError", b"cudaDevice"),
    *(b"cudaPeekAtLastEr", b"cudaPointerGetAt", b"cudaStreamIsCapt", b"cudaStreamWaitEv"),
    at=_CATEGORY_AT + len(_LAUNCH),
)
"""Calls of the runtime that launch no GPU row, by as much of their names as is compared."""
_IS_LABEL = _Beginnings(
    *(b' "%b' % name.encode()[: _WORD - 2] for name in LABELS_AMONG_OPS), at=_CATEGORY_AT + len(_OPERATOR)
)

_PROBED = 64
"""Operators of a text that are asked whether they record shapes, evenly spread."""
_SHAPES = b'"Input Dims"'


class Sifter:
    """Sifts the texts of one file; operators are passed over until some are seen to record shapes."""

    def __init__(self) -> None:
        self._with_shapes = False

    def __call__(self, text: bytes, /) -> tuple[Sifted, int] | None:
        """The wanted events of the array that the text opens, but the last; and where that begins.

        None where the text is not laid out so that its events can be told without decoding them.
        """
        starts = _starts(text)
        if len(starts) < 2 or starts[1] < _BEFORE or text[1 : starts[0]].strip():
            return None
        heads = _Heads.around(starts[1:], text)
        if not heads.follow_events():
            return None
        last = len(starts) - 1
        heads = _Heads(heads.words[:, :-1])
        events = _Events(text=text, starts=starts[:-1], ends=starts[1:] - len(_BETWEEN) + 2)
        every = np.arange(last - 1)
        complete = heads.begin(_IS_COMPLETE, every)
        kinds = {kind: heads.begin(beginning, complete) for kind, beginning in _KINDS.items()}
        unknown = np.ones(len(every), dtype=np.bool_)
        for known in kinds.values():
            unknown[known] = False
        unknown[heads.begin(_IS_UNWANTED, np.flatnonzero(unknown))] = False
        kinds[Category.LAUNCH] = heads.without(_IS_IDLE_CALL, kinds[Category.LAUNCH])
        kinds[Category.OP] = self._with_use(kinds[Category.OP], heads, events)
        # The first event stands before those that heads are of; nothing is told of it.
        found: Sifted = {kind: events.array(chosen + 1) for kind, chosen in kinds.items()}
        found[None] = events.array(np.append(0, np.flatnonzero(unknown) + 1))
        return found, int(starts[last])

    def _with_use(self, operators: Places, heads: _Heads, events: _Events) -> Places:
        """Those of which shapes or a label can be read."""
        if not self._with_shapes:
            probed = events.texts(operators[:: max(1, len(operators) // _PROBED)] + 1)
            self._with_shapes = any(_SHAPES in text for text in probed)
        if self._with_shapes:
            return operators
        escaped = operators[heads.have_escape(_IS_LABEL.first, operators)]
        return np.union1d(heads.begin(_IS_LABEL, operators), escaped)


@dataclass(frozen=True, slots=True, eq=False)
class _Heads:
    """How events begin: the words around the brace of each, a row a word."""

    words: Words

    @classmethod
    def around(cls, starts: Places, text: bytes) -> _Heads:
        width = _WORD + _HEAD
        if len(text) <= starts[-1] + _HEAD:
            text += b" " * _HEAD
        heads = np.ndarray((len(text) - width + 1,), dtype=f"V{width}", buffer=text, strides=(1,))
        return cls(heads[starts - _BEFORE].view("<u8").reshape(-1, width // _WORD).T)

    def follow_events(self) -> bool:
        """Whether each stands behind another event."""
        shift = np.uint64(8 * (_WORD - len(_BETWEEN)))
        return bool(np.all(self.words[0] >> shift == _number(_BETWEEN)))

    def begin(self, beginnings: _Beginnings, among: Places) -> Places:
        """Those of these events that begin with one of the texts."""
        first = self.words[beginnings.first]
        first = first if len(among) == len(first) else first[among]
        found = []
        for words in beginnings.words:
            left = among[words[0].equals(first)]
            for place, word in enumerate(words[1:], beginnings.first + 1):
                left = left[word.equals(self.words[place][left])]
            found.append(left)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def without(self, beginnings: _Beginnings, among: Places) -> Places:
        """The other events."""
        return np.setdiff1d(among, self.begin(beginnings, among), assume_unique=True)

    def have_escape(self, word: int, among: Places) -> Mask:
        """Which of these events have a backslash in this word."""
        octets = self.words[word][among].view(np.uint8).reshape(-1, _WORD)
        found: Mask = (octets == ord("\\")).any(axis=1)
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Events:
    """Where the events of a text stand."""

    text: bytes
    starts: Places
    ends: Places

    def texts(self, chosen: Places, /) -> Iterator[bytes]:
        """The chosen events."""
        stretches = map(slice, self.starts[chosen].tolist(), self.ends[chosen].tolist())
        return map(self.text.__getitem__, stretches)

    def array(self, chosen: Places, /) -> bytes:
        """The chosen events as a JSON array."""
        texts = list(self.texts(chosen)) or [b""]
        texts[0] = b"[" + texts[0]
        texts[-1] += b"]"
        return b",".join(texts)


def _starts(text: bytes) -> Places:
    """The braces that may open elements of an array: the first, and those that open no member's value."""
    octets = np.frombuffer(text, dtype=np.uint8)
    braces = np.flatnonzero(octets == ord("{"))
    inner = braces[1:]
    behind = octets[inner - 1]
    may_open = _BEFORE_AN_ELEMENT[behind]
    spaced = np.flatnonzero(behind == ord(" "))
    may_open[spaced] = octets[inner[spaced] - 2] != ord(":")
    return np.concatenate((braces[:1], inner[may_open]))
