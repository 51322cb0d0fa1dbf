"""Cutting a GEMM's rows into chunks that fill whole tiles, all alike or smaller towards one end."""

from __future__ import annotations

import enum
import itertools

from conccl.core.errors import InputError

ROW_TILE = 128
"""Rows are cut at multiples of this where there are enough: a chunk should fill its tiles."""


class Sizes(enum.StrEnum):
    """How long the chunks are beside each other."""

    EQUAL = "equal"
    SHRINKING = "shrinking"
    """The chunk at the exposed end is a quarter and the one before it half as long as the others.

    Nothing hides the transfer of a producer's last chunk, or of a consumer's first.
    """


def cut_rows(rows: int, count: int, /, *, sizes: Sizes = Sizes.EQUAL, tile: int = ROW_TILE) -> list[int]:
    """Row counts of the chunks in order, none empty, in whole tiles where there are enough."""
    if rows < count:
        raise InputError(f"{count} chunks of a GEMM of {rows} rows. Ask for {max(rows, 1)} or fewer.")
    unit = tile if rows >= count * tile else 1
    units = -(-rows // unit)
    bounds = _bounds(units, _weights(count, sizes))
    return [b - a for a, b in itertools.pairwise(min(rows, bound * unit) for bound in bounds)]


def _weights(count: int, sizes: Sizes) -> list[int]:
    if sizes is Sizes.EQUAL or count < 3:
        return [4] * count
    return [4] * (count - 2) + [2, 1]


def _bounds(units: int, weights: list[int]) -> list[int]:
    """Shares of whole units, one or more each."""
    whole, bounds = sum(weights), [0]
    for index, upto in enumerate(itertools.accumulate(weights)):
        left = len(weights) - 1 - index
        bounds.append(min(units - left, max(bounds[-1] + 1, units * upto // whole)))
    return bounds
