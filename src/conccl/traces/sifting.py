"""Picks the wanted events out of text as Kineto lays it out, so that the others are never decoded.

Most events of a trace say nothing that is asked for: host operators, arrows, calls that launch nothing. To
pass over them here takes less than a JSON parser needs to skip them. Kineto puts ``},``, a line break and
``  {`` between two events. Since a line break cannot stand inside a JSON string, and an array of objects
inside an event must begin with a brace behind a bracket or a comma, it can be told for certain whether
these are all the places where events of the text begin. Where it cannot, nothing is picked; and an event
that does not begin as Kineto writes it is never passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    """Texts with which events may begin, as the words that they fill."""

    def __init__(self, *texts: bytes, at: int = 0) -> None:
        self.first = 1 + at // _WORD
        longest = max(map(len, texts))
        places = range(0, longest, _WORD)
        pieces = [[text[place : place + _WORD] for text in texts] for place in places]
        self.numbers = [_numbers(row) for row in pieces]
        self.masks = [
            None if min(map(len, row)) == _WORD else _numbers([b"\xff" * len(piece) for piece in row])
            for row in pieces
        ]


def _numbers(pieces: Iterable[bytes]) -> npt.NDArray[np.uint64]:
    return np.array([[int.from_bytes(piece, "little")] for piece in pieces], dtype=np.uint64)


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
    Category.KERNEL: _Beginnings(b'kernel", ', at=_CATEGORY_AT),
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
        if len(starts) < 2 or text[1 : starts[0]].strip():
            return None
        heads = _Heads.around(starts[1:], text)
        if not heads.follow_events():
            return None
        starts, last = starts[:-1], int(starts[-1])
        heads = heads.of(slice(len(starts) - 1))
        complete = heads.begin(_IS_COMPLETE)
        kinds = {kind: complete & heads.begin(beginning) for kind, beginning in _KINDS.items()}
        unknown = ~np.logical_or.reduce(list(kinds.values()))
        unknown[unknown] = ~heads.of(unknown).begin(_IS_UNWANTED)
        events = _Events(text=text, starts=starts, ends=np.append(starts[1:], last) - len(_BETWEEN) + 2)
        _leave_out(kinds[Category.LAUNCH], heads.of(kinds[Category.LAUNCH]).begin(_IS_IDLE_CALL))
        self._leave_out_operators(kinds[Category.OP], heads, events)
        found: Sifted = {kind: events.array(np.flatnonzero(chosen) + 1) for kind, chosen in kinds.items()}
        found[None] = events.array(np.append(0, np.flatnonzero(unknown) + 1))  # nothing is told of the first
        return found, last

    def _leave_out_operators(self, operators: Mask, heads: _Heads, events: _Events) -> None:
        """Those of which neither shapes nor a label can be read."""
        if not self._with_shapes:
            places = np.flatnonzero(operators) + 1
            probed = events.texts(places[:: max(1, len(places) // _PROBED)])
            self._with_shapes = any(_SHAPES in text for text in probed)
        if not self._with_shapes:
            named = heads.of(operators)
            _leave_out(operators, ~(named.begin(_IS_LABEL) | named.have_escape(_IS_LABEL.first)))


def _leave_out(chosen: Mask, which: Mask) -> None:
    """Of those chosen leave out some; one entry a chosen one."""
    chosen[chosen] = ~which


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

    def of(self, chosen: Mask | slice) -> _Heads:
        """Of the chosen events only."""
        return _Heads(self.words[:, chosen])

    def follow_events(self) -> bool:
        """Whether each stands behind another event."""
        number = np.uint64(int.from_bytes(_BETWEEN, "little"))
        return bool(np.all(self.words[0] >> np.uint64(8 * (_WORD - len(_BETWEEN))) == number))

    def begin(self, texts: _Beginnings) -> Mask:
        """Which begin with one of these texts."""
        found = np.ones((len(texts.numbers[0]), self.words.shape[1]), dtype=np.bool_)
        for word, number, mask in zip(self.words[texts.first :], texts.numbers, texts.masks, strict=False):
            found &= (word if mask is None else word & mask) == number
        any_of_them: Mask = np.logical_or.reduce(found) if len(found) > 1 else found[0]
        return any_of_them

    def have_escape(self, word: int) -> Mask:
        """Which have a backslash in this word."""
        octets = np.ascontiguousarray(self.words[word]).view(np.uint8).reshape(-1, _WORD)
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
    may_open = _BEFORE_AN_ELEMENT[octets[inner - 1]]
    may_open &= (octets[inner - 1] != ord(" ")) | (octets[inner - 2] != ord(":"))
    return np.concatenate((braces[:1], inner[may_open]))
