"""Sums and their like along one dimension, as PyTorch's reduce_kernel lays them out."""

from __future__ import annotations

from conccl.core.hardware import Device
from conccl.core.ops import Reduction
from conccl.costs.kernel import KernelCost
from conccl.costs.streaming import Stream, streaming_kernel

PAIRED = frozenset({"var", "std", "argmax", "argmin", "max", "min"})
"""Reductions that carry two numbers: a running mean, or a place. Their kernels are others."""

PAIRED_EFFORT = 2.1
"""Instructions over those of a sum, where no kind of its own was fitted (measured, 2026-11-30)."""

SCATTERED_INSTRUCTIONS = 80.0
"""For an element, where those of a result lie in several runs, as of a bias over images (gradients of biases
in a U-Net on the H200, 2026-11-30)."""

MOST_CTAS = 2112
"""CTAs that a reduction down columns is spread over: 16 an SM on the H200."""


def reduction_kernels(op: Reduction, device: Device, /) -> tuple[KernelCost, ...]:
    """One kernel; where few results are left, CTAs share them and a counter is cleared first."""
    if op.name == "nll_loss":
        return (_whole_in_one(op, device),)
    if op.inner > 1:
        return _down_columns(op, device)
    if op.outer < device.sm_count and op.reduced >= 16_384:
        return _shared(op, device)
    return (_along_rows(op, device),)


def _stream(op: Reduction, *, ctas: int, threads: int, steps: float) -> Stream:
    effort = PAIRED_EFFORT if op.name in PAIRED else 1.0
    scattered = SCATTERED_INSTRUCTIONS if op.pieces > 1 and op.inner == 1 else None
    elements = op.outer * op.reduced * op.inner
    return Stream(
        read_nbytes=elements * op.dtype.nbytes,
        written_nbytes=op.outer * op.inner * op.dtype.nbytes,
        ctas=ctas,
        threads=threads,
        elements=elements * effort,
        instructions=scattered,
        steps=max(1.0, steps * effort),
    )


def _along_rows(op: Reduction, device: Device) -> KernelCost:
    """A warp or more for each row, 512 threads a CTA."""
    rows_of_cta = 16 if op.reduced <= 8192 else 1
    threads_of_row = 512 // rows_of_cta
    stream = _stream(op, ctas=-(-op.outer // rows_of_cta), threads=512, steps=op.reduced / threads_of_row / 4)
    return streaming_kernel(_kind("reduce_rows", op), stream, device)


def _kind(kind: str, op: Reduction) -> str:
    return f"{kind}_pairs" if op.name in PAIRED else kind


def _shared(op: Reduction, device: Device) -> tuple[KernelCost, ...]:
    each = max(1, min(-(-op.reduced // 8192), 8 * device.sm_count // op.outer))
    stream = _stream(op, ctas=op.outer * each, threads=512, steps=op.reduced / each / 512 / 8)
    counter = Stream(read_nbytes=0, written_nbytes=4, ctas=1, threads=32)
    return (
        streaming_kernel("driver_fill", counter, device, name="memset"),
        streaming_kernel("reduce_all", stream, device),
    )


def _down_columns(op: Reduction, device: Device) -> tuple[KernelCost, ...]:
    """Four columns a thread where they divide, else one; long columns are shared among CTAs."""
    if op.inner % 4:
        ctas = op.outer * -(-op.inner // 32)
        stream = _stream(op, ctas=ctas, threads=512, steps=op.reduced / 16 / 4)
        return (streaming_kernel("reduce_odd_columns", stream, device),)
    blocks = op.outer * -(-op.inner // 128)
    values = op.reduced / 4
    shared = 1
    if values >= 256 or (blocks < device.sm_count and values >= 64):
        shared = max(1, min(int(values // 16), MOST_CTAS // blocks))
    stream = _stream(op, ctas=blocks * shared, threads=128, steps=values / shared / 4)
    if shared == 1:
        return (streaming_kernel(_kind("reduce_columns", op), stream, device),)
    kernel = streaming_kernel(_kind("reduce_shared_columns", op), stream, device)
    counter = Stream(read_nbytes=0, written_nbytes=4, ctas=1, threads=32)
    return (streaming_kernel("driver_fill", counter, device, name="memset"), kernel)


def _whole_in_one(op: Reduction, device: Device) -> KernelCost:
    """The loss: one CTA over all rows."""
    stream = Stream(
        read_nbytes=op.reduced * 32,
        written_nbytes=4,
        ctas=1,
        threads=512,
        steps=min(max(op.reduced / 32, 1), 16),  # threads grow with the rows
    )
    return streaming_kernel("loss", stream, device)
