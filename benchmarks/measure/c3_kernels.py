"""A copy kernel on a chosen number of SMs, which also serves to occupy SMs without moving anything."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 4096
"""8-byte words that one CTA moves at a time."""
STAGES = 8
"""Depth of the pipeline: a ring of all but one tile, 224 KiB of shared memory, so an SM holds one CTA."""
WARPS = 16


@triton.jit
def conccl_tile_copy_kernel(destination, source, words, limit, TILE: tl.constexpr, STAGES: tl.constexpr):  # noqa: N803
    """Walk over ``words`` 8-byte words, tile by tile, and copy those below ``limit``.

    With limit 0 nothing is moved: the CTAs only stay on their SMs.
    """
    lanes = tl.arange(0, TILE)
    start = tl.program_id(0).to(tl.int64) * TILE
    for offset in tl.range(start, words, tl.num_programs(0) * TILE, num_stages=STAGES):
        index = offset + lanes
        mask = index < limit
        tl.store(destination + index, tl.load(source + index, mask=mask), mask=mask)


def copy(destination: Tensor, source: Tensor, *, ctas: int) -> None:
    """Enqueue destination <- source (equally long, whole 8-byte words) on the current stream."""
    into, out_of = destination.view(torch.int64), source.view(torch.int64)
    words = into.numel()
    conccl_tile_copy_kernel[(ctas,)](into, out_of, words, words, TILE=TILE, STAGES=STAGES, num_warps=WARPS)


def occupy(anywhere: Tensor, *, ctas: int, tiles: int) -> None:
    """Enqueue CTAs that keep one SM each busy for ``tiles`` steps; ``anywhere`` stays as it is."""
    it = anywhere.view(torch.int64)
    words = tiles * ctas * TILE
    conccl_tile_copy_kernel[(ctas,)](it, it, words, 0, TILE=TILE, STAGES=STAGES, num_warps=WARPS)
