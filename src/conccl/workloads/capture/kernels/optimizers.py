"""Multi-tensor kernels: foreach ops and fused optimizers, launched in chunks as CUDA does it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from conccl.core.ops import Elementwise
from conccl.workloads.capture.kernels.call import AtenCall
from conccl.workloads.capture.tensors import is_on_device, touched_nbytes
from conccl.workloads.captured import Kernel

CHUNK = 65536
"""Elements of one block (kChunkSize in PyTorch's MultiTensorApply.cuh)."""

BLOCKS = 320
"""Blocks of one launch (depth_to_max_blocks there)."""

TENSORS = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}
"""Tensors of one launch, by how many lists it goes through (depth_to_max_tensors there)."""


def _lists(call: AtenCall) -> list[list[torch.Tensor]]:
    """The tensor lists among the arguments that the kernel goes through side by side."""
    found = []
    for value in (*call.args, *call.kwargs.values()):
        if isinstance(value, (list, tuple)) and value and all(is_on_device(item) for item in value):
            found.append(list(value))
    return found


def foreach(call: AtenCall, /) -> Iterator[Kernel]:
    """An op over lists of tensors: as many launches as tensors and blocks fill."""
    lists = _lists(call)
    if not lists:
        return
    outputs = [tensor for tensor in call.outputs if tensor.numel()]
    new = outputs if not call.name.endswith("_") else lists[0]
    depth = min(5, len(lists) + (0 if call.name.endswith("_") else 1))
    numels = [tensor.numel() for tensor in lists[0]]
    for first, last, share in launches(numels, depth=depth):
        reads = [tensor for tensors in lists for tensor in tensors[first:last]]
        writes = new[first:last]
        nbytes = [round(share * sum(map(touched_nbytes, tensors))) for tensors in (reads, writes)]
        numel = round(share * sum(numels[first:last]))
        op = Elementwise(
            name=call.name, read_nbytes=nbytes[0], written_nbytes=nbytes[1], flops=2 * numel, numel=numel
        )
        yield call.kernel(op)


def launches(numels: list[int], /, *, depth: int) -> Iterator[tuple[int, int, float]]:
    """(first tensor, last tensor + 1, share of their elements) of each launch over tensors of these sizes."""
    first, blocks, done_before = 0, 0, 0
    for index, numel in enumerate(numels):
        chunks = max(1, -(-numel // CHUNK))
        for chunk in range(chunks):
            blocks += 1
            full = blocks == BLOCKS or (index - first + 1 == TENSORS[depth] and chunk == chunks - 1)
            if full or (index == len(numels) - 1 and chunk == chunks - 1):
                done = sum(numels[first:index]) + min(numel, (chunk + 1) * CHUNK)
                whole = sum(numels[first : index + 1])
                yield first, index + 1, (done - done_before) / whole if whole else 0.0
                more = chunk < chunks - 1
                first = index if more else index + 1
                done_before = min(numel, (chunk + 1) * CHUNK) if more else 0
                blocks = 0


def _fused(call: AtenCall) -> Iterator[Kernel]:
    """Fused optimizers go through parameters, gradients and states in one pass, read and written."""
    lists = [tensors for tensors in _lists(call) if any(tensor.numel() > 1 for tensor in tensors)] or _lists(
        call
    )
    numels = [tensor.numel() for tensor in lists[0]]
    for first, last, share in launches(numels, depth=min(5, len(lists))):
        reads = sum(touched_nbytes(tensor) for tensors in lists for tensor in tensors[first:last])
        gradient = sum(map(touched_nbytes, lists[1][first:last])) if len(lists) > 1 else 0
        numel = round(share * sum(numels[first:last]))
        op = Elementwise(
            name=call.name,
            read_nbytes=round(share * reads),
            written_nbytes=round(share * (reads - gradient)),
            flops=16 * numel,
            numel=numel,
        )
        yield call.kernel(op)


def _unscale(call: AtenCall) -> Iterator[Kernel]:
    yield from foreach(call)


RULES: dict[str, Any] = {
    **dict.fromkeys(
        (
            "_fused_adam_",
            "_fused_adamw_",
            "_fused_sgd_",
            "_fused_adagrad_",
            "_fused_adam",
            "_fused_adamw",
            "_fused_sgd",
        ),
        _fused,
    ),
    "_amp_foreach_non_finite_check_and_unscale_": _unscale,
}
