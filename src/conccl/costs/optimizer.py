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

MOST_TENSORS = (110, 110, 64, 48, 36, 30)
"""Tensors of one launch, by lists (torch's depth_to_max_tensors)."""

MORE_LISTS = frozenset({"foreach_sqrt", "foreach_addcmul"})
"""Operations with a list beside those read: the result's, or one that comes twice."""

EFFORT = {"foreach_sqrt": 1.15, "foreach_norm": 0.7}
"""Instructions and least time of a step over those of other operations (measured, 2026-11-30)."""


def foreach_kernels(op: ForEach, device: Device, /) -> tuple[KernelCost, ...]:
    """As many launches as chunks and tensors ask for; a norm clears its sums first and adds them up last."""
    if op.numel == 0:
        return ()
    lists = max(op.reads + (op.name in MORE_LISTS), op.writes)
    most = MOST_TENSORS[min(lists, len(MOST_TENSORS) - 1)]
    full = op.numel / CHUNK  # chunks that are full; each tensor's last one is not
    if full < op.tensors:
        launches = -(-op.tensors // most)
        parts = [(op.numel / launches, op.tensors / launches)] * launches
    else:
        chunks = full + op.tensors / 2
        many, rest = divmod(chunks, MOST_CHUNKS)
        parts = [(op.numel * MOST_CHUNKS / chunks, float(MOST_CHUNKS))] * int(many)
        if full <= MOST_CHUNKS:  # a few large tensors among small ones: the first launch has all that counts
            parts = [(float(op.numel), min(chunks, MOST_CHUNKS))]
        elif rest >= 1:
            parts.append((op.numel * rest / chunks, rest))
        small = -(-op.tensors // most) - len(parts)
        parts += [(64.0 * most, float(most))] * small
    kernels = tuple(_launch(op, device, numel=numel, ctas=max(1, round(ctas))) for numel, ctas in parts)
    if op.writes:
        return kernels
    sums = Elementwise(name="fill", read_nbytes=0, written_nbytes=4 * len(kernels) * MOST_CHUNKS)
    added = Elementwise(name="norm", read_nbytes=4 * MOST_CHUNKS, written_nbytes=4 * op.tensors)
    return (*elementwise_kernels(sums, device), *kernels, *elementwise_kernels(added, device))


def _launch(op: ForEach, device: Device, *, numel: float, ctas: int) -> KernelCost:
    effort = EFFORT.get(op.name, 1.0)
    fused = op.name.startswith("fused")
    steps = effort * (0.55 + 0.15 * (op.reads + op.writes))
    stream = Stream(
        read_nbytes=op.reads * numel * op.dtype.nbytes,
        written_nbytes=op.writes * numel * op.dtype.nbytes,
        ctas=ctas,
        threads=512,
        elements=numel * effort,
        registers=61 if fused else 36,
        steps=max(1.0, numel / ctas / 2048) * steps,
    )
    return streaming_kernel("multi_tensor_fused" if fused else "multi_tensor", stream, device, name=op.name)


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
