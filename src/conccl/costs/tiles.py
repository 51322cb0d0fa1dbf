"""The tiles that a GEMM library may cut its output into, as arrays with one entry a candidate.

Where matrix units read shared memory (Hopper and later: 228 KiB an SM), the library has tiles of a multiple
of 64 by nearly any multiple of 8 and takes one that fills the SMs: cuBLAS 13.0 on the H200 was seen with 110.
Elsewhere, and where operands are not aligned to 16 bytes, tiles are powers of two.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.hardware import Device

Numbers = npt.NDArray[np.float64]

BLOCK_NBYTES = 128
"""Bytes of a tile's row or column that one step of the K loop takes: a swizzled line of shared memory."""

WIDE_NBYTES = 200 << 10
"""Shared memory of an SM from which on its matrix units read their operands there."""

RESERVED_NBYTES = 15 << 10
"""Shared memory kept for the output and barriers (cuBLAS' kernels on the H200 use 213 of 228 KiB at most)."""

MOST_OUTPUTS = 40_960
"""Outputs of one tile: what two warpgroups' registers hold (128 x 320, 160 x 256)."""

SM_OUTPUTS = 32_768
"""Outputs that the registers of an SM hold beside what loads and addresses need."""

MOST_RESIDENT = 8
"""CTAs of the smallest tiles on an SM."""

MOST_STAGES = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tiles:
    """Candidates, side by side."""

    m: Numbers
    n: Numbers
    stages: Numbers
    """Steps of the K loop whose operands fit into shared memory."""
    slowdown: Numbers
    """Time on the matrix units over that of a tile whose operands' reads they hide, padding included."""
    paired: npt.NDArray[np.bool_]
    """Two warpgroups share a tile: less of its epilogue hides under another tile."""
    split: Numbers
    """Parts that the K loop is cut into."""
    odd: Numbers
    """1 where a side is no multiple of 64, 0 elsewhere."""
    resident: Numbers
    """CTAs that an SM holds at once."""

    def __len__(self) -> int:
        return len(self.m)

    def where(self, keep: npt.NDArray[np.bool_] | npt.NDArray[np.intp], /) -> Tiles:
        """The candidates for which the mask holds, or those at these places."""
        return Tiles(
            m=self.m[keep],
            n=self.n[keep],
            stages=self.stages[keep],
            slowdown=self.slowdown[keep],
            paired=self.paired[keep],
            split=self.split[keep],
            odd=self.odd[keep],
            resident=self.resident[keep],
        )


SPLITS = (1, 2, 3, 4, 6, 8, 16, 32, 64, 128)
"""Parts that a K loop may be cut into, so that few tiles keep all SMs busy."""


def is_wide(device: Device, /) -> bool:
    """Whether the device's matrix units read their operands from shared memory."""
    return device.shared_memory_nbytes >= WIDE_NBYTES


@functools.cache
def wide_tiles(shared_memory_nbytes: int, /) -> Tiles:
    """Multiples of 64 by multiples of 8, two or more stages deep."""
    pairs = set()
    for side in (64, 128, 192, 256, 320, 384, 448, 512):
        for other in (*range(8, 64, 8), *range(64, 257, 16)):
            if side * other <= MOST_OUTPUTS:
                pairs |= {(side, other), (other, side)}
    m, n = _sides(pairs)
    stages = _stages(m, n, shared_memory_nbytes - RESERVED_NBYTES)
    keep = stages >= 2
    slowdown = np.minimum(_wide_slowdown(m, n), _wide_slowdown(n, m))
    paired = m * n > MOST_OUTPUTS / 2
    tiles = _with_splits(m, n, stages=stages, slowdown=slowdown, paired=paired, resident=np.ones_like(m))
    return tiles.where(np.tile(keep, len(SPLITS)))


@functools.cache
def square_tiles(shared_memory_nbytes: int, /, *, shared: bool = False) -> Tiles:
    """Powers of two from 32 to 256; ``shared``: small ones leave room on their SM for others."""
    sides = (32, 64, 128, 256)
    m, n = _sides({(m, n) for m in sides for n in sides if m * n <= 32_768})
    stages = np.maximum(_stages(m, n, shared_memory_nbytes // 2), 2)
    return _with_splits(
        m,
        n,
        stages=np.minimum(stages, 6),
        slowdown=np.ones_like(m),
        paired=m * n >= 128 * 128,
        resident=np.clip(np.floor(SM_OUTPUTS / (m * n)), 1, MOST_RESIDENT if shared else 1),
    )


def _sides(pairs: set[tuple[int, int]]) -> tuple[Numbers, Numbers]:
    ordered = np.array(sorted(pairs), dtype=np.float64)
    return ordered[:, 0], ordered[:, 1]


def _stages(m: Numbers, n: Numbers, usable_nbytes: int) -> Numbers:
    return np.clip(np.floor(usable_nbytes / ((m + n) * BLOCK_NBYTES)), 0, MOST_STAGES)


def _wide_slowdown(long: Numbers, short: Numbers) -> Numbers:
    """An instruction does 64 rows of ``long`` by all of ``short`` and reads both from shared memory.

    128 bytes a clock are read and 64 x short x 16 products take short / 2 clocks, so that below 64 columns
    the reads are what takes time; rows are padded to 64.
    """
    padded = np.ceil(long / 64) * 64 / long
    return padded * np.maximum(1.0, (64 + short) / (2 * short))


def _with_splits(
    m: Numbers,
    n: Numbers,
    *,
    stages: Numbers,
    slowdown: Numbers,
    paired: npt.NDArray[np.bool_],
    resident: Numbers,
) -> Tiles:
    """Every tile once for each way to split the K loop; the ones without a split first."""
    times = len(SPLITS)
    return Tiles(
        m=np.tile(m, times),
        n=np.tile(n, times),
        stages=np.tile(stages, times),
        slowdown=np.tile(slowdown, times),
        paired=np.tile(paired, times),
        split=np.repeat(np.array(SPLITS, dtype=np.float64), len(m)),
        resident=np.tile(resident, times),
        odd=np.tile(((m % 64 != 0) | (n % 64 != 0)).astype(np.float64), times),
    )
