"""Fused attention: tiles of rows, each going over the blocks it may see, softmax between two products.

Forward, a CTA takes a tile of queries and goes over the keys; backward, a tile of keys and goes over the
queries. A block takes what the products take on the matrix units, and the exponentials beside them. Causal
tiles see ever more blocks; kernels take them from the shortest to the longest, so that the longest ends last.
A single query a head reads keys and values once: that is a stream, split over the keys where heads are few.
"""

from __future__ import annotations

from dataclasses import dataclass

from conccl.core.hardware import Device
from conccl.core.kinds import AttentionBackend, Pass
from conccl.core.ops import Attention
from conccl.costs.constants import constant
from conccl.costs.elementwise import driver_fill
from conccl.costs.gemm import peak_flops
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, KernelCost, kernel_cost
from conccl.costs.streaming import Stream, streaming_kernel
from conccl.costs.tiles import is_wide


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """How a backend cuts the work (kernel names, grids and resources that the profiler shows on the H200)."""

    rows: int
    """Queries of a CTA's tile; keys backward."""
    block: int
    """Keys of one step of its loop; queries backward."""
    threads: int
    registers: int
    """Of a thread."""
    shared_memory_nbytes: int
    """At a head dimension of 128."""


TILINGS = {
    "attention_cudnn": Tiling(rows=128, block=128, threads=384, registers=168, shared_memory_nbytes=232_448),
    "attention_cudnn_backward": Tiling(
        rows=128, block=64, threads=384, registers=168, shared_memory_nbytes=216_064
    ),
    "attention_flash": Tiling(rows=128, block=64, threads=128, registers=255, shared_memory_nbytes=65_536),
    "attention_flash_backward": Tiling(
        rows=128, block=64, threads=256, registers=255, shared_memory_nbytes=147_456
    ),
    "attention_efficient": Tiling(rows=64, block=64, threads=128, registers=128, shared_memory_nbytes=52_224),
    "attention_efficient_backward": Tiling(
        rows=64, block=64, threads=128, registers=168, shared_memory_nbytes=84_480
    ),
    "attention_fp32": Tiling(rows=64, block=64, threads=128, registers=168, shared_memory_nbytes=86_016),
    "attention_fp32_backward": Tiling(
        rows=64, block=64, threads=128, registers=232, shared_memory_nbytes=107_008
    ),
}
"""Kind of attention kernel -> its tiling."""

DRAWN_NS = {Pass.FORWARD: 0.13, Pass.BACKWARD: 0.08}
"""Of an SM's time, a random number for one score takes this long (cuDNN 9 on the H200, 2026-11-30)."""

MOST_GROUPS = 16
"""Lengths of causal tiles that are told apart."""

DECODE_BLOCK = 128
"""Keys of one step of a kernel for a single query."""

UNSPLIT_HEADS = 96
"""From so many CTAs on, keys are not split: 96 heads on 132 SMs are not (cuDNN 9 on the H200)."""


def attention_kernels(op: Attention, device: Device, /) -> tuple[KernelCost, ...]:
    """The fused kernel and those around it: a counter set to zero, and backward, sums before and after."""
    if op.direction is Pass.BACKWARD:
        return _backward_kernels(op, device)
    backend = backend_of(op, device)
    if op.queries == 1:
        return _decode_kernels(op, device)
    kernel = _tiled_kernel(f"attention_{backend}", op, device)
    return (driver_fill(4, device), kernel) if backend == "cudnn" else (kernel,)


def backend_of(op: Attention, device: Device, /) -> str:
    """What does it: fp32 has its own; the default is cuDNN where matrix units read shared memory."""
    if op.dtype.nbytes > 2:
        return "fp32"
    if op.backend is AttentionBackend.DEFAULT:
        return "cudnn" if is_wide(device) else "flash"
    return op.backend.value


def padded(head_dim: int, /) -> int:
    """Kernels exist for head dimensions of 64 and multiples of 128."""
    return 64 if head_dim <= 64 else -(-head_dim // 128) * 128


def _backward_kernels(op: Attention, device: Device) -> tuple[KernelCost, ...]:
    """Row sums of gradient times output, the products, the query's gradient rounded, heads added up."""
    backend = backend_of(op, device)
    kernels = [_stream("attention_dot", op, device, read=2, written=4 / op.dtype.nbytes)]
    if backend == "cudnn":
        kernels.insert(0, driver_fill(4, device))
    if backend == "flash":
        kernels.insert(0, _stream("attention_dot", op, device, read=1, written=1))
    kernels.append(_tiled_kernel(f"attention_{backend}_backward", op, device))
    if backend in ("cudnn", "flash"):
        kernels.append(_stream("attention_convert", op, device, read=4 / op.dtype.nbytes, written=1))
    if op.heads > op.kv_heads:
        kernels += [_head_sum(op, device)] * 2
    return tuple(kernels)


def _stream(kind: str, op: Attention, device: Device, *, read: float, written: float) -> KernelCost:
    """A pass over tensors of the query's size: so many read and written."""
    numel = op.batch * op.heads * op.queries * op.head_dim
    stream = Stream(
        read_nbytes=read * numel * op.dtype.nbytes,
        written_nbytes=written * numel * op.dtype.nbytes,
        ctas=op.batch * op.heads * -(-op.queries // 16),
        threads=128,
        elements=numel,
    )
    return streaming_kernel(kind, stream, device)


def _head_sum(op: Attention, device: Device) -> KernelCost:
    """The gradients of heads that share keys, added up."""
    numel = op.batch * op.heads * op.keys * op.head_dim
    stream = Stream(
        read_nbytes=numel * op.dtype.nbytes,
        written_nbytes=numel * op.dtype.nbytes * op.kv_heads / op.heads,
        ctas=op.batch * op.kv_heads * -(-op.keys // 8),
        threads=128,
    )
    return streaming_kernel("attention_heads", stream, device)


def _tiled_kernel(kind: str, op: Attention, device: Device) -> KernelCost:
    tiling = TILINGS[kind]
    backward = op.direction is Pass.BACKWARD
    rows, others = (op.keys, op.queries) if backward else (op.queries, op.keys)
    blocks = _blocks(op, tiling, rows=rows, others=others)
    width = padded(op.head_dim)
    pair_flops = (10 if backward else 4) * width
    block_flops = pair_flops * tiling.rows * tiling.block
    issued = peak_flops(op.dtype, device) * constant(device, f"{kind}.rate_share") / device.sm_count / 1e9
    step_ns = constant(device, f"{kind}.step_ns") * tiling.rows * tiling.block / 128**2
    drawn_ns = DRAWN_NS[op.direction] * tiling.rows * tiling.block if op.dropout else 0.0
    block_ns = block_flops / issued + step_ns + drawn_ns
    heads = op.batch * op.heads
    tiles = heads * -(-rows // tiling.rows)
    in_nbytes = op.batch * op.head_dim * op.dtype.nbytes
    query_nbytes, key_nbytes = in_nbytes * op.heads * op.queries, in_nbytes * op.kv_heads * op.keys
    read = (2 * query_nbytes if backward else query_nbytes) + 2 * key_nbytes
    written = 2 * in_nbytes * op.heads * op.keys + 2 * query_nbytes if backward else query_nbytes
    seen = sum(count * length for count, length in blocks)
    groups = tuple(
        CtaGroup(
            count=heads * count,
            work=CtaWork(
                latency_ns=constant(device, f"{kind}.cta_ns"),
                sm_ns=length * block_ns,
                hbm_read_nbytes=read / tiles,
                hbm_write_nbytes=written / tiles,
                l2_nbytes=length * tiling.block * width * op.dtype.nbytes * (4 if backward else 2)
                + read / tiles,
                flops=op.flops * length / max(seen, 1) / heads,
            ),
        )
        for count, length in blocks
    )
    return kernel_cost(
        kind,
        device=device,
        groups=groups,
        footprint=_footprint(tiling, width, device),
        fixed_ns=constant(device, f"{kind}.start_ns"),
        uncertainty=constant(device, f"{kind}.uncertainty"),
        model=kind,
        l2_footprint_nbytes=float(key_nbytes * 2),
    )


def _footprint(tiling: Tiling, width: int, device: Device) -> Footprint:
    """What a tile holds: shared memory grows with the head dimension, up to all that an SM has."""
    wanted = round(tiling.shared_memory_nbytes * (0.5 + width / 256))
    return Footprint(
        threads=tiling.threads,
        registers=min(tiling.registers * tiling.threads, device.registers_per_sm),
        shared_memory_nbytes=min(wanted, device.shared_memory_nbytes),
    )


def _blocks(op: Attention, tiling: Tiling, *, rows: int, others: int) -> list[tuple[int, float]]:
    """Tiles of one head, shortest first, as (count, blocks of each); close lengths are merged."""
    tiles, every = -(-rows // tiling.rows), -(-others // tiling.block)
    if not op.causal:
        return [(tiles, float(every))]
    if op.direction is Pass.BACKWARD:
        lengths = [-(-max(others - tile * tiling.rows, 0) // tiling.block) for tile in range(tiles)][::-1]
    else:
        lengths = [min(-(-(tile + 1) * tiling.rows // tiling.block), every) for tile in range(tiles)]
    size = -(-tiles // MOST_GROUPS)
    merged = [lengths[first : first + size] for first in range(0, tiles, size)]
    return [(len(some), sum(some) / len(some)) for some in merged]


def _decode_kernels(op: Attention, device: Device) -> tuple[KernelCost, ...]:
    """One query a head: keys and values are read once for all heads that share them."""
    heads = op.batch * op.kv_heads
    splits = 1
    if heads < UNSPLIT_HEADS:
        most = min(2 * device.sm_count // heads, -(-op.keys // DECODE_BLOCK))
        splits = 1 << (max(1, most).bit_length() - 1)
    query_nbytes = op.batch * op.heads * op.head_dim * op.dtype.nbytes
    stream = Stream(
        read_nbytes=2 * heads * op.keys * op.head_dim * op.dtype.nbytes + query_nbytes,
        written_nbytes=query_nbytes * splits,
        ctas=heads * splits,
        threads=128,
        registers=183,
        shared_memory_nbytes=min(86_336 * padded(op.head_dim) // 128, device.shared_memory_nbytes),
        steps=op.keys / splits / DECODE_BLOCK,
    )
    backend = "attention_decode" if backend_of(op, device) == "cudnn" else "attention_flash_decode"
    kernel = streaming_kernel(backend, stream, device)
    if splits == 1 and backend == "attention_decode":
        return (kernel,)
    added = Stream(
        read_nbytes=2 * query_nbytes * splits,
        written_nbytes=query_nbytes,
        ctas=op.batch * op.heads,
        threads=256,
    )
    return (kernel, streaming_kernel("attention_combine", added, device))
