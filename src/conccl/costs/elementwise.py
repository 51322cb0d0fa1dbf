"""Kernels that touch each element once, as PyTorch launches them: one CTA for every 512 or 1024 elements."""

from __future__ import annotations

from conccl.core.hardware import Device
from conccl.core.kinds import Access
from conccl.core.ops import Elementwise
from conccl.costs.kernel import KernelCost
from conccl.costs.streaming import Stream, streaming_kernel

THREADS = 128

ELEMENTS = {Access.CONTIGUOUS: 1024, Access.CASTING: 512, Access.STRIDED: 512, Access.TRANSPOSED: 512}
"""Elements of one CTA (grids that the profiler shows for PyTorch 2.11)."""

NAMED = {
    "cat": "joined",
    "gather_rows": "indexed",
    "index_put": "indexed",
    "index_add": "scattered",
    "scatter_add": "scattered",
    "expand": "expanded",
}
"""Kinds of their own among kernels with strided accesses."""

INSTRUCTIONS = {
    "gelu": 42.0,
    "gelu_backward": 57.0,
    "gelu_tanh": 36.0,
    "gelu_tanh_backward": 49.0,
    "silu": 33.5,
    "silu_backward": 47.0,
    "sigmoid": 34.5,
    "tanh": 33.0,
    "where": 53.0,
    "fill": 20.0,
}
"""Instructions an element of dense half-precision kernels that are bound by them: 132 SMs x 128 lanes x 1.98
GHz over the elements a second measured on the H200, 2026-11-30."""


def elementwise_kernels(op: Elementwise, device: Device, /) -> tuple[KernelCost, ...]:
    """One kernel, or none where there is nothing to touch; driver copies and fills by their names."""
    if op.nbytes == 0:
        return ()
    numel = op.numel or max(1, max(op.read_nbytes, op.written_nbytes) // 2)
    if op.name == "copy" and op.access is Access.CONTIGUOUS:
        return (_driver_copy(op, device),)
    if op.name == "memset":
        return (driver_fill(op.written_nbytes, device),)
    if op.name == "dropout":
        return (_dropout(op, numel, device),)
    kind = "fill" if op.name == "fill" else op.access.value
    if op.access is not Access.CONTIGUOUS:
        kind = NAMED.get(op.name, kind)
    dense = op.access is Access.CONTIGUOUS
    wide = (op.read_nbytes + op.written_nbytes) / numel > 12  # fp32 operands: memory is what takes time
    stream = Stream(
        read_nbytes=op.read_nbytes,
        written_nbytes=op.written_nbytes,
        ctas=-(-numel // ELEMENTS[op.access]),
        threads=THREADS,
        elements=numel,
        instructions=_instructions(op, numel, listed=dense and not wide),
    )
    return (streaming_kernel(kind, stream, device, name=op.name),)


def _instructions(op: Elementwise, numel: int, *, listed: bool) -> float | None:
    """For each element: as the op says, as listed, or as its kind has them."""
    if op.flops:
        return op.flops / 2 / numel
    return INSTRUCTIONS.get(op.name) if listed else None


def _driver_copy(op: Elementwise, device: Device) -> KernelCost:
    return driver_copy(op.read_nbytes, device)


def driver_copy(nbytes: int, device: Device, /) -> KernelCost:
    """CudaMemcpyAsync inside the GPU's memory: SMs do it, 16 KiB a CTA."""
    stream = Stream(read_nbytes=nbytes, written_nbytes=nbytes, ctas=-(-nbytes // 16_384), threads=512)
    return streaming_kernel("driver_copy", stream, device, name="memcpy")


def driver_fill(nbytes: int, device: Device, /) -> KernelCost:
    """CudaMemsetAsync."""
    stream = Stream(read_nbytes=0, written_nbytes=nbytes, ctas=-(-nbytes // 16_384), threads=512)
    return streaming_kernel("driver_fill", stream, device, name="memset")


def _dropout(op: Elementwise, numel: int, device: Device) -> KernelCost:
    """A grid of eight CTAs an SM that goes over the elements with its random numbers."""
    ctas = min(-(-numel // 256), 8 * device.sm_count)
    stream = Stream(
        read_nbytes=op.read_nbytes,
        written_nbytes=op.written_nbytes,
        ctas=ctas,
        threads=256,
        elements=numel,
        registers=56,
        steps=numel / ctas / 1024,
    )
    return streaming_kernel("dropout", stream, device)
