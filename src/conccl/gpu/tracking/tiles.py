"""In which order a persistent GEMM makes its tiles: chunk by chunk, so that the first one can leave first."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FIELDS = 5
"""Of a tile: first row of x, first row of the output, rows, first column, chunk."""

GROUP = 8
"""Tiles of rows that are made side by side: their columns of the weight are then in L2 together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Rows of x that become as many rows of the output, as part of a chunk."""

    chunk: int
    x_row: int
    out_row: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TileOrder:
    """The tiles in their order, and how many each chunk has."""

    table: npt.NDArray[np.int32]
    """[tiles, FIELDS]."""
    by_chunk: tuple[int, ...]


@functools.lru_cache(maxsize=256)
def tile_order(spans: tuple[Span, ...], /, *, columns: int, block_m: int, block_n: int) -> TileOrder:
    """The tiles of these spans, which come in the order in which they are wanted."""
    chunks = 1 + max((span.chunk for span in spans), default=-1)
    rows: list[tuple[int, ...]] = []
    for chunk in range(chunks):
        strips = [strip for span in spans if span.chunk == chunk for strip in _strips(span, block_m)]
        for first in range(0, len(strips), GROUP):
            for column in range(0, columns, block_n):
                rows.extend((*strip, column, chunk) for strip in strips[first : first + GROUP])
    table = np.array(rows, dtype=np.int32).reshape(-1, FIELDS)
    counts = np.bincount(table[:, 4], minlength=chunks) if chunks else np.zeros(0, dtype=np.int64)
    return TileOrder(table=table, by_chunk=tuple(counts.tolist()))


def _strips(span: Span, block_m: int) -> Iterator[tuple[int, int, int]]:
    """First row of x, first row of the output and rows of each strip of tiles."""
    for done in range(0, span.rows, block_m):
        yield span.x_row + done, span.out_row + done, min(block_m, span.rows - done)
