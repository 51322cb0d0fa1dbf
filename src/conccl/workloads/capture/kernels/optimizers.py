"""Multi-tensor kernels: foreach ops and fused optimizers, launched in chunks as CUDA does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from conccl.core.kinds import Access, Memory
from conccl.core.ops import Copy, ForEach
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.kernels.copies import filled
from conccl.workloads.capture.tensors import dtype_of, is_on_device
from conccl.workloads.captured import Kernel

CHUNK = 65536
"""Elements of one block (kChunkSize in aten/src/ATen/native/cuda/MultiTensorApply.cuh)."""

BLOCKS = 320
"""Blocks of one launch (depth_to_max_blocks there)."""

TENSORS = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}
"""Tensors of one launch, by how many lists it goes through (depth_to_max_tensors there)."""

TENSORS_WITH_STEPS = {1: 72, 2: 60, 3: 48, 4: 36, 5: 30}
"""For fused optimizers, whose arguments hold each tensor's step (depth_to_max_tensors_scalarlist)."""


def _lists(call: AtenCall) -> list[list[torch.Tensor]]:
    """The tensor lists among the arguments that the kernel goes through side by side."""
    return [
        list(value)
        for value in (*call.args, *call.kwargs.values())
        if isinstance(value, (list, tuple)) and value and all(is_on_device(item) for item in value)
    ]


def foreach(call: AtenCall, /) -> Iterator[Kernel]:
    """An op over lists of tensors: one kernel over many, or one a tensor where the fast path is closed."""
    lists = _lists(call)
    if not lists:
        return
    in_place = call.name.endswith("_")
    if not _is_fast(lists):
        for index in range(len(lists[0])):
            tensors = [tensors[index] for tensors in lists]
            yield call.elementwise(reads=tensors, writes=tensors[:1])
        return
    if call.name in ("_foreach_norm", "_foreach_max"):
        yield from _norms(call, lists[0])
        return
    copies = call.name.startswith("_foreach_copy")
    reads = len({id(tensors[0]) for tensors in lists}) - (1 if copies else 0)
    if call.name.startswith("_foreach_zero"):
        reads = 0
    yield _many(call, lists, reads=reads, writes=1, depth=len(lists) + (0 if in_place else 1))


def _is_fast(lists: Sequence[Sequence[torch.Tensor]]) -> bool:
    """All dense, of equal shapes and types across lists (can_use_fast_route)."""
    first = lists[0]
    return all(
        len(tensors) == len(first)
        and all(
            one.shape == other.shape and one.stride() == other.stride()
            for one, other in zip(tensors, first, strict=True)
        )
        for tensors in lists[1:]
    )


def _norms(call: AtenCall, tensors: list[torch.Tensor]) -> Iterator[Kernel]:
    """Parts of each chunk into a cleared buffer, then one kernel that joins them."""
    yield filled(torch.empty(max(1, sum(_chunks(tensor.numel()) for tensor in tensors)), device="meta"))
    kernel = _many(call, [tensors], reads=1, writes=0, depth=1)
    yield Kernel(name=kernel.name, op=kernel.op, launches=kernel.launches + 1)


def _many(
    call: AtenCall,
    lists: Sequence[Sequence[torch.Tensor]],
    *,
    reads: int,
    writes: int,
    depth: int,
    most: dict[int, int] | None = None,
) -> Kernel:
    numels = [tensor.numel() for tensor in lists[0]]
    op = ForEach(
        name=call.name.removeprefix("_").removesuffix("_"),
        numel=sum(numels),
        tensors=len(numels),
        reads=reads,
        writes=writes,
        dtype=dtype_of(lists[0][0]),
    )
    return call.kernel(op, launches=launches(numels, tensors=(most or TENSORS)[min(5, depth)]))


def _chunks(numel: int) -> int:
    return -(-numel // CHUNK)


def launches(numels: Sequence[int], /, *, tensors: int) -> int:
    """Kernels that so many tensors of these sizes take, each having room for ``tensors`` and `BLOCKS`."""
    count, held, blocks = 0, 0, 0
    for numel in numels:
        if not numel:
            continue
        held += 1
        for chunk in range(_chunks(numel)):
            blocks += 1
            last = chunk == _chunks(numel) - 1
            if (held == tensors and last) or blocks == BLOCKS:
                count += 1
                held, blocks = (0, 0) if last else (1, 0)
    return count + (blocks > 0)


def _fused(call: AtenCall) -> Iterator[Kernel]:
    """Fused optimizers go through parameters, gradients and states in one pass; steps are added before."""
    lists = [tensors for tensors in _lists(call) if any(tensor.numel() > 1 for tensor in tensors)]
    lists = lists or _lists(call)[:1]
    yield _many(
        call,
        lists,
        reads=len(lists),
        writes=max(1, len(lists) - 1),
        depth=len(lists),
        most=TENSORS_WITH_STEPS,
    )


def _copied_in(call: AtenCall) -> Iterator[Kernel]:
    """FSDP: parameters side by side into the buffer that is gathered (``_foreach_copy_``)."""
    lists = _lists(call)
    if lists:
        yield _many(call, lists, reads=1, writes=1, depth=2)


def _split_or_joined(call: AtenCall) -> Iterator[Kernel]:
    """FSDP: a kernel over all tensors, which finds their places in a table that is copied to the GPU.

    split_with_sizes_copy and _chunk_cat in aten/src/ATen/native/cuda/TensorShape.cu.
    """
    places = max(map(len, _lists(call)), default=1)
    table = Copy(nbytes=32 * places, source=Memory.HOST, destination=Memory.DEVICE)
    yield Kernel(name="copy_", op=table)
    whole = call.inputs[0] if call.name == "split_with_sizes_copy" else call.inputs[-1]
    yield call.elementwise(kind="copy", reads=[whole], writes=[whole], access=Access.STRIDED)


_FUSED = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")

RULES: dict[str, Rule] = {
    **dict.fromkeys(_FUSED, _fused),
    "all_gather_copy_in": _copied_in,
    "split_with_sizes_copy": _split_or_joined,
    "chunk_cat": _split_or_joined,
    "_chunk_cat": _split_or_joined,
    "_amp_foreach_non_finite_check_and_unscale_": foreach,
}
