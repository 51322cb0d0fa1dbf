"""What kernels an op becomes on a device: the one entry to the cost models.

A model is a function from op and device to kernels. To add one for an op of your own::

    from conccl.costs.kernels import register
    from conccl.costs.streaming import Stream, streaming_kernel

    def my_scan(op: MyScan, device: Device) -> tuple[KernelCost, ...]:
        ctas = -(-op.numel // 1024)
        stream = Stream(read_nbytes=4 * op.numel, written_nbytes=4 * op.numel, ctas=ctas, threads=256)
        return (streaming_kernel("contiguous", stream, device, name="my_scan"),)

    register(MyScan, my_scan)

The op is a frozen dataclass, so that equal ops are costed once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from conccl.core.errors import UnknownNameError
from conccl.core.hardware import Device
from conccl.core.ops import (
    Attention,
    Collective,
    Convolution,
    Copy,
    Elementwise,
    ForEach,
    Gather,
    Gemm,
    GroupedGemm,
    Move,
    OptimizerStep,
    Order,
    Pooling,
    Recurrent,
    Reduce,
    Reduction,
    Rowwise,
    Warm,
)
from conccl.costs.attention import attention_kernels
from conccl.costs.collective import collective_kernels
from conccl.costs.convolution import convolution_kernels
from conccl.costs.copies import copy_kernels, move_kernels, reduce_kernels
from conccl.costs.elementwise import elementwise_kernels
from conccl.costs.embedding import gather_kernels
from conccl.costs.gemm import gemm_kernels, grouped_gemm_kernels
from conccl.costs.kernel import KernelCost
from conccl.costs.optimizer import foreach_kernels, optimizer_kernels
from conccl.costs.order import order_kernels
from conccl.costs.pooling import pooling_kernels
from conccl.costs.recurrent import recurrent_kernels
from conccl.costs.reduction import reduction_kernels
from conccl.costs.rowwise import rowwise_kernels
from conccl.costs.warm import warm_kernels

Model = Callable[[Any, Device], tuple[KernelCost, ...]]

MODELS: dict[type, Model] = {
    Gemm: gemm_kernels,
    GroupedGemm: grouped_gemm_kernels,
    Attention: attention_kernels,
    Convolution: convolution_kernels,
    Recurrent: recurrent_kernels,
    Elementwise: elementwise_kernels,
    Rowwise: rowwise_kernels,
    Reduction: reduction_kernels,
    Gather: gather_kernels,
    Pooling: pooling_kernels,
    Order: order_kernels,
    ForEach: foreach_kernels,
    OptimizerStep: optimizer_kernels,
    Copy: copy_kernels,
    Move: move_kernels,
    Reduce: reduce_kernels,
    Collective: collective_kernels,
}
"""Op type -> its model."""


def _warm(op: Warm, device: Device, /) -> tuple[KernelCost, ...]:
    return warm_kernels(op, device, kernels_of=kernels_of)


MODELS[Warm] = _warm


def register(kind: type, model: Model, /) -> None:
    """Cost ops of this type by this model, in place of the one they had."""
    MODELS[kind] = model
    kernels_of.cache_clear()


@functools.lru_cache(maxsize=1 << 16)
def kernels_of(op: Any, device: Device, /) -> tuple[KernelCost, ...]:
    """The kernels that the op becomes, in order; none where there is nothing to do."""
    model = MODELS.get(type(op))
    if model is None:
        raise UnknownNameError(
            kind="op with a cost model", name=type(op).__name__, known=[known.__name__ for known in MODELS]
        )
    return model(op, device)
