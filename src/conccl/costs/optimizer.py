"""Updates of many parameters by kernels over lists of tensors."""

from __future__ import annotations

from conccl.core.errors import InputError
from conccl.core.hardware import Device
from conccl.core.kinds import Fusion, OptimizerKind
from conccl.core.ops import Elementwise, ForEach, OptimizerStep
from conccl.costs.elementwise import elementwise_kernels
from conccl.costs.kernel import KernelCost
from conccl.costs.streaming import Stream, streaming_kernel

CHUNK = 65_536
"""Elements of one CTA."""

MOST_CHUNKS = 320
"""CTAs of one launch: its arguments hold no more."""

MOST_ADDRESSES = 144
"""Tensors times lists of one launch, about."""


def foreach_kernels(op: ForEach, device: Device, /) -> tuple[KernelCost, ...]:
    """As many launches as chunks and tensors ask for, evenly filled."""
    if op.numel == 0:
        return ()
    lists = max(op.reads, op.writes)
    chunks = max(op.tensors, -(-op.numel // CHUNK))
    tensors = max(1, min(MOST_ADDRESSES // (lists + 1), 110))
    launches = max(-(-chunks // MOST_CHUNKS), -(-op.tensors // tensors))
    numel = op.numel / launches
    ctas = -(-chunks // launches)
    effort = (op.reads + op.writes + 1) / 4
    stream = Stream(
        read_nbytes=op.reads * numel * op.dtype.nbytes,
        written_nbytes=op.writes * numel * op.dtype.nbytes,
        ctas=ctas,
        threads=512,
        elements=numel * effort,
        steps=max(1.0, min(numel / ctas, op.numel / op.tensors, CHUNK) / 2048) * effort,
    )
    return (streaming_kernel("multi_tensor", stream, device, name=op.name),) * launches


_FUSED = {
    OptimizerKind.SGD: (2, 1),
    OptimizerKind.MOMENTUM: (3, 2),
    OptimizerKind.ADAM: (4, 3),
    OptimizerKind.ADAMW: (4, 3),
    OptimizerKind.ADAGRAD: (3, 2),
    OptimizerKind.RMSPROP: (3, 2),
}
"""Lists read and written in one pass."""

_ADAM = (("lerp", 2, 1), ("mul", 1, 1), ("addcmul", 2, 1), ("sqrt", 1, 1), ("div", 1, 1), ("add", 1, 1))

_ROOT = (("addcmul", 2, 1), ("sqrt", 1, 1), ("add", 1, 1), ("addcdiv", 3, 1))

_OPERATIONS: dict[OptimizerKind, tuple[tuple[str, int, int], ...]] = {
    OptimizerKind.SGD: (("add", 2, 1),),
    OptimizerKind.MOMENTUM: (("mul", 1, 1), ("add", 2, 1), ("add", 2, 1)),
    OptimizerKind.ADAM: (*_ADAM, ("addcdiv", 3, 1)),
    OptimizerKind.ADAMW: (("mul", 1, 1), *_ADAM, ("addcdiv", 3, 1)),
    OptimizerKind.ADAGRAD: (("addcmul", 2, 1), ("sqrt", 1, 1), ("add", 1, 1), ("addcdiv", 3, 1)),
    OptimizerKind.RMSPROP: (
        ("mul", 1, 1),
        ("addcmul", 2, 1),
        ("sqrt", 1, 1),
        ("add", 1, 1),
        ("addcdiv", 3, 1),
    ),
}
"""What torch.optim calls where it does not fuse: name, lists read, lists written."""


def optimizer_kernels(op: OptimizerStep, device: Device, /) -> tuple[KernelCost, ...]:
    """One pass, one for each operation, or one for each operation and tensor."""
    if op.numel == 0:
        return ()
    if op.fusion is Fusion.FUSED:
        reads, writes = _FUSED[op.kind]
        update = ForEach(
            name=f"fused_{op.kind}",
            numel=op.numel,
            tensors=op.tensors,
            reads=reads,
            writes=writes,
            dtype=op.dtype,
        )
        return foreach_kernels(update, device)
    if op.fusion not in (Fusion.FOREACH, Fusion.SINGLE):
        raise InputError(f"OptimizerStep.fusion is {op.fusion}; it must be one of {', '.join(Fusion)}.")
    kernels: tuple[KernelCost, ...] = ()
    for name, reads, writes in _OPERATIONS[op.kind]:
        kernels += _operation(op, device, name=name, reads=reads, writes=writes)
    return kernels


def _operation(
    op: OptimizerStep, device: Device, *, name: str, reads: int, writes: int
) -> tuple[KernelCost, ...]:
    if op.fusion is Fusion.FOREACH:
        every = ForEach(
            name=f"foreach_{name}",
            numel=op.numel,
            tensors=op.tensors,
            reads=reads,
            writes=writes,
            dtype=op.dtype,
        )
        return foreach_kernels(every, device)
    numel = max(1, op.numel // op.tensors)
    one = Elementwise(
        name=name,
        read_nbytes=reads * numel * op.dtype.nbytes,
        written_nbytes=writes * numel * op.dtype.nbytes,
        numel=numel,
    )
    return elementwise_kernels(one, device) * op.tensors
