"""Maximum, average and nearest-neighbour kernels over images."""

from __future__ import annotations

from math import prod

from conccl.core.hardware import Device
from conccl.core.kinds import Access, Pass
from conccl.core.ops import Elementwise, Pooling, Reduction
from conccl.costs.elementwise import elementwise_kernels
from conccl.costs.kernel import KernelCost
from conccl.costs.reduction import reduction_kernels
from conccl.costs.streaming import Stream, streaming_kernel

NAMES = ("max_pool", "avg_pool", "upsample")
"""Kinds of kernels; an unknown one is taken for the first."""


def pooling_kernels(op: Pooling, device: Device, /) -> tuple[KernelCost, ...]:
    """A thread for each output forward and each input backward; to one pixel it is a mean."""
    if prod(op.out_size) == 1:
        return _to_one(op, device)
    forward = op.direction is Pass.FORWARD
    name = op.name if op.name in NAMES else NAMES[0]
    kind = f"{name}_{'' if forward else 'backward_'}{'last' if op.channels_last else 'first'}"
    touched = op.batch * op.channels * prod(op.out_size if forward else op.in_size)
    stream = Stream(
        read_nbytes=op.nbytes - touched * op.dtype.nbytes,
        written_nbytes=touched * op.dtype.nbytes,
        ctas=-(-touched // 256),
        threads=256,
        elements=touched * (op.window + 4),
    )
    kernel = streaming_kernel(kind, stream, device)
    if forward or name != "max_pool":
        return (kernel,)
    cleared = Elementwise(name="fill", read_nbytes=0, written_nbytes=touched * op.dtype.nbytes, numel=touched)
    return (*elementwise_kernels(cleared, device), kernel)


def _to_one(op: Pooling, device: Device) -> tuple[KernelCost, ...]:
    pixels = prod(op.in_size)
    numel, nbytes = op.batch * op.channels, op.batch * op.channels * op.dtype.nbytes
    if op.direction is Pass.BACKWARD:
        spread = Elementwise(
            name="expand",
            read_nbytes=nbytes,
            written_nbytes=nbytes * pixels,
            numel=numel * pixels,
            access=Access.STRIDED,
        )
        return elementwise_kernels(spread, device)
    if op.channels_last:
        mean = Reduction(outer=op.batch, reduced=pixels, inner=op.channels, dtype=op.dtype, name="mean")
    else:
        mean = Reduction(outer=numel, reduced=pixels, dtype=op.dtype, name="mean")
    return reduction_kernels(mean, device)
