"""What bytes hold, symbolically: the input bytes that are moved or reduced into them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from conccl.collectives.layout import Layout
from conccl.core.ops import CollectiveKind as Kind
from conccl.core.ops import ReduceOp, Region


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What the first byte of a piece holds; the bytes after it hold the input bytes after those."""

    terms: tuple[tuple[int, int, int], ...]
    """(position, byte of its input, times), sorted."""
    divisor: int = 1

    def shifted(self, by: int, /) -> Content:
        """The content so many bytes further on."""
        if by == 0:
            return self
        terms = tuple((position, at + by, times) for position, at, times in self.terms)
        return Content(terms=terms, divisor=self.divisor)


Piece = tuple[int, int, Content | None]
"""Bytes [start, stop) and what they hold; None: nobody wrote them."""


class Bytes:
    """The contents of one buffer, piece by piece."""

    def __init__(self) -> None:
        self._starts = [0]
        self._contents: list[Content | None] = [None]

    def read(self, start: int, stop: int, /) -> Iterator[Piece]:
        """[start, stop) as pieces."""
        index = bisect_right(self._starts, start) - 1
        while start < stop:
            begins = self._starts[index]
            end = self._starts[index + 1] if index + 1 < len(self._starts) else stop
            content = self._contents[index]
            yield start, min(stop, end), content.shifted(start - begins) if content else None
            start, index = end, index + 1

    def write(self, start: int, stop: int, content: Content | None, /) -> None:
        """[start, stop) holds this from now on."""
        first, end = self._cut(start), self._cut(stop)
        self._starts[first:end] = [start]
        self._contents[first:end] = [content]

    def _cut(self, at: int) -> int:
        index = bisect_right(self._starts, at) - 1
        begins = self._starts[index]
        if begins != at:
            content = self._contents[index]
            index += 1
            self._starts.insert(index, at)
            self._contents.insert(index, content.shifted(at - begins) if content else None)
        return index


def wanted(layout: Layout, position: int, /) -> Iterator[tuple[Region, Content]]:
    """What each piece of a position's output must hold in the end."""
    everyone = range(layout.count)
    whole = layout.whole_output(position)
    if whole.nbytes == 0:
        return
    divisor = layout.count if layout.collective.reduce_op is ReduceOp.AVG and layout.count > 1 else 1
    match layout.kind:
        case Kind.ALL_GATHER | Kind.GATHER:
            for one in everyone:
                yield layout.got(position, one), Content(terms=((one, 0, 1),))
        case Kind.ALL_TO_ALL:
            for one in everyone:
                yield layout.got(position, one), Content(terms=((one, layout.starts[one][position], 1),))
        case Kind.REDUCE_SCATTER:
            at = layout.starts[position][position]
            yield whole, Content(terms=tuple((one, at, 1) for one in everyone), divisor=divisor)
        case Kind.ALL_REDUCE | Kind.REDUCE:
            yield whole, Content(terms=tuple((one, 0, 1) for one in everyone), divisor=divisor)
        case Kind.SCATTER:
            yield whole, Content(terms=((layout.root, layout.starts[layout.root][position], 1),))
        case _:
            yield whole, Content(terms=((layout.root, 0, 1),))
