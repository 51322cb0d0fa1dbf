"""Which rows of a matrix belong to which rank, and in which chunks they are made and sent.

Blocks are those of `torch.chunk`: all of ceil(rows / ranks) rows but the last ones, which may be shorter or
empty. A chunk that holds rows of every block is the same piece of each.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from conccl.strategies.cutting import ROW_TILE, Sizes, cut_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """``rows`` rows in a block for each of ``ranks`` ranks."""

    rows: int
    ranks: int

    @property
    def longest(self) -> int:
        """Rows of a block that is not cut short."""
        return -(-self.rows // self.ranks)

    def bounds(self, rank: int, /) -> tuple[int, int]:
        """First row of a rank's block, and the first behind it."""
        return min(self.rows, rank * self.longest), min(self.rows, (rank + 1) * self.longest)

    def of(self, rank: int, /) -> int:
        """Rows of a rank's block."""
        start, stop = self.bounds(rank)
        return stop - start

    def piece(self, rank: int, start: int, stop: int, /) -> tuple[int, int]:
        """Rows [start, stop) of a rank's block as rows of the matrix; fewer where the block is short."""
        begin, end = self.bounds(rank)
        return min(end, begin + start), min(end, begin + stop)

    @property
    def is_even(self) -> bool:
        """Whether all blocks are of one length."""
        return self.rows % self.ranks == 0


def pieces(
    rows: int, chunks: int, /, *, ranks: int = 1, sizes: Sizes = Sizes.EQUAL, growing: bool = False
) -> list[tuple[int, int]]:
    """Bounds of the chunks of a block of so many rows; fewer chunks where there are fewer rows.

    ``ranks`` is how many such blocks a chunk has a piece of: those together should fill tiles.
    """
    count = min(chunks, rows)
    if count < 1:
        return []
    counts = cut_rows(rows, count, sizes=sizes, tile=max(1, ROW_TILE // ranks))
    if growing:
        counts.reverse()
    bounds = [0, *itertools.accumulate(counts)]
    return list(itertools.pairwise(bounds))
