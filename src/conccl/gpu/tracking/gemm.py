"""A persistent Triton GEMM that counts the finished tiles of each chunk, or waits for the rows that it reads.

Counting is T3's tracker in software (arXiv:2401.16677). It stands behind the epilogue's stores, outside of
the loop over k that is pipelined: a barrier and an atomic inside one flattened loop more than doubled the
time of such a kernel on an H200. The barrier orders a CTA's stores before the release of its one counting
thread, so whoever reads the counter with acquire, or a stream that waits for its value, sees the tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from conccl.core.errors import InputError
from conccl.gpu.tracking.tiles import FIELDS, TileOrder

_jit: Any = triton.jit

_INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Triton's interpreter, which checks the kernel without a GPU, has no products of bf16."""


@_jit  # type: ignore[untyped-decorator]
def _activate(x, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    if ACTIVATION == "relu":
        x = tl.maximum(x, 0.0)
    elif ACTIVATION == "silu":
        x = x * tl.sigmoid(x)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = 0.5 * x * (1.0 + (2.0 * tl.sigmoid(2.0 * inner) - 1.0))
    return x


@_jit  # type: ignore[untyped-decorator]
def tracked_gemm_kernel(  # type: ignore[no-untyped-def]
    x,
    weight,
    bias,
    out,
    tiles,
    counters,
    arrived,
    failed,
    first_tile,
    end_tile,
    n,
    k,
    x_stride_m,
    x_stride_k,
    weight_stride_n,
    weight_stride_k,
    out_stride_m,
    spin_limit,
    FIELDS: tl.constexpr,  # noqa: N803
    BLOCK_M: tl.constexpr,  # noqa: N803
    BLOCK_N: tl.constexpr,  # noqa: N803
    BLOCK_K: tl.constexpr,  # noqa: N803
    STAGES: tl.constexpr,  # noqa: N803
    PRECISION: tl.constexpr,  # noqa: N803
    WIDEN: tl.constexpr,  # noqa: N803
    HAS_BIAS: tl.constexpr,  # noqa: N803
    ACTIVATION: tl.constexpr,  # noqa: N803
    COUNTS: tl.constexpr,  # noqa: N803
    WAITS: tl.constexpr,  # noqa: N803
):
    """Tiles [first_tile, end_tile) of the order, CTA by CTA in turn."""
    for tile in range(first_tile + tl.program_id(0), end_tile, tl.num_programs(0)):
        row = tiles + tile * FIELDS
        x_row = tl.load(row).to(tl.int64)
        out_row = tl.load(row + 1).to(tl.int64)
        rows = tl.load(row + 2)
        column = tl.load(row + 3)
        chunk = tl.load(row + 4)
        if WAITS:
            # Bounded: a chunk that never comes is told of by its number, and its tiles are garbage.
            spins = 0
            here = tl.atomic_add(arrived + chunk, 0, sem="acquire", scope="sys")
            while (here == 0) & (spins < spin_limit):
                here = tl.atomic_add(arrived + chunk, 0, sem="acquire", scope="sys")
                spins += 1
            if here == 0:
                tl.atomic_max(failed, chunk + 1, sem="relaxed", scope="sys")
        in_m = tl.arange(0, BLOCK_M)
        in_n = column + tl.arange(0, BLOCK_N)
        in_k = tl.arange(0, BLOCK_K)
        a = x + (x_row + in_m)[:, None] * x_stride_m + in_k[None, :] * x_stride_k
        b = weight + in_n.to(tl.int64)[None, :] * weight_stride_n + in_k[:, None] * weight_stride_k
        is_row = in_m[:, None] < rows
        is_column = in_n[None, :] < n
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in tl.range(0, tl.cdiv(k, BLOCK_K), num_stages=STAGES):
            left = k - step * BLOCK_K
            left_side = tl.load(a, mask=is_row & (in_k[None, :] < left), other=0.0)
            right_side = tl.load(b, mask=is_column & (in_k[:, None] < left), other=0.0)
            if WIDEN:
                left_side, right_side = left_side.to(tl.float32), right_side.to(tl.float32)
            total = tl.dot(left_side, right_side, total, input_precision=PRECISION)
            a += BLOCK_K * x_stride_k
            b += BLOCK_K * weight_stride_k
        if HAS_BIAS:
            total += tl.load(bias + in_n, mask=in_n < n, other=0.0).to(tl.float32)[None, :]
        total = _activate(total, ACTIVATION)
        to = out + (out_row + in_m)[:, None] * out_stride_m + in_n[None, :]
        tl.store(to, total.to(out.dtype.element_ty), mask=is_row & is_column)
        if COUNTS:
            tl.debug_barrier()
            tl.atomic_add(counters + chunk, 1, sem="release", scope="sys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Sizes of a tile and of the pipeline that makes it."""

    m: int = 128
    n: int = 256
    k: int = 64
    stages: int = 3
    warps: int = 8

    @classmethod
    def of(cls, x: Tensor, columns: int, /) -> Blocks:
        """What suits the element type and the number of columns (not tuned by measurements yet)."""
        if x.element_size() > 2:
            return cls(m=64, n=64, k=32)
        return cls(n=256 if columns >= 2048 else 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracking:
    """What a launch counts in and waits for: words of device memory."""

    counters: Tensor | None = None
    """int32, one a chunk: tiles that are finished."""
    arrived: Tensor | None = None
    """int32, one a chunk: not 0 when the rows of x that it reads are there."""
    failed: Tensor | None = None
    """int32, one: 1 + the number of a chunk that did not come in time."""
    spin_limit: int = 50_000_000
    """Looks at ``arrived`` before a tile gives up: a look takes about a microsecond."""


DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32})


def tracked_gemm(
    out: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    /,
    *,
    order: TileOrder,
    blocks: Blocks,
    tracking: Tracking,
    activation: str = "none",
    ctas: int,
    tiles: Tensor | None = None,
    part: tuple[int, int] | None = None,
) -> None:
    """Enqueue ``out[rows] = activation(x[rows] @ weight.T + bias)`` for the rows of an order's tiles.

    ``tiles`` is the order's table in device memory; ``ctas`` how many SMs the kernel takes; ``part`` some of
    the tiles (None: all).
    """
    if x.dtype not in DTYPES or out.stride(1) != 1:
        raise InputError(f"the tracking kernel makes bf16, fp16 and fp32 rows; x is {x.dtype}.")
    table = torch.from_numpy(order.table).to(x.device) if tiles is None else tiles
    first, end = part or (0, len(order.table))
    if end <= first:
        return
    nothing = out.new_empty(0, dtype=torch.int32)
    tracked_gemm_kernel[(min(ctas, end - first),)](
        x,
        weight,
        out if bias is None else bias,
        out,
        table,
        nothing if tracking.counters is None else tracking.counters,
        nothing if tracking.arrived is None else tracking.arrived,
        nothing if tracking.failed is None else tracking.failed,
        first,
        end,
        len(weight),
        x.shape[1],
        *x.stride(),
        *weight.stride(),
        out.stride(0),
        tracking.spin_limit,
        FIELDS=FIELDS,
        BLOCK_M=blocks.m,
        BLOCK_N=blocks.n,
        BLOCK_K=blocks.k,
        STAGES=blocks.stages,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32",
        WIDEN=_INTERPRETED,
        HAS_BIAS=bias is not None,
        ACTIVATION=activation,
        COUNTS=tracking.counters is not None,
        WAITS=tracking.arrived is not None,
        num_warps=blocks.warps,
    )
