"""Copies, casts, fills and what crosses the host link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from conccl.core.kinds import Access, Memory
from conccl.core.ops import Copy, Elementwise
from conccl.workloads.capture.kernels.call import AtenCall
from conccl.workloads.capture.tensors import access_of, is_on_device, tensors_in, touched_nbytes
from conccl.workloads.captured import Kernel

def _copy(call: AtenCall) -> Iterator[Kernel]:
    """Within the device: a memcpy where both are dense and of one type, else an elementwise kernel."""
    out = tensors_in(call.out)[0]
    source = call.args[1] if call.name == "copy_" else call.args[0]
    if not isinstance(source, torch.Tensor) or not out.numel():
        return
    if is_on_device(out) != is_on_device(source):
        ends = (Memory.HOST, Memory.DEVICE) if is_on_device(out) else (Memory.DEVICE, Memory.HOST)
        op = Copy(nbytes=touched_nbytes(source), source=ends[0], destination=ends[1])
        yield Kernel(name=f"memcpy {ends[0]} to {ends[1]}", op=op)
    elif _is_memcpy(source, out):
        yield Kernel(name="memcpy device to device", op=Copy(nbytes=touched_nbytes(source)))
    else:
        yield call.elementwise(name="copy", reads=[source], writes=[out])


def _is_memcpy(source: torch.Tensor, out: torch.Tensor) -> bool:
    """As at::native::copy_kernel_cuda decides: one element type, both contiguous in the same order."""
    same = source.dtype == out.dtype and source.shape == out.shape
    return same and source.is_contiguous() and out.is_contiguous()


def _clone(call: AtenCall) -> Iterator[Kernel]:
    source, out = call.inputs[0], call.outputs[0]
    if not out.numel():
        return
    if _is_memcpy(source, out):
        yield Kernel(name="memcpy device to device", op=Copy(nbytes=touched_nbytes(source)))
    else:
        yield call.elementwise(name="copy")


def _fill(call: AtenCall) -> Iterator[Kernel]:
    if call.outputs and call.outputs[0].numel():
        yield call.elementwise(name="fill", reads=[])


def _random(call: AtenCall) -> Iterator[Kernel]:
    if call.outputs and call.outputs[0].numel():
        yield call.elementwise(name="random", reads=[], flops_per_element=16)


def _index_like(call: AtenCall) -> Iterator[Kernel]:
    if call.outputs and call.outputs[0].numel():
        yield call.elementwise(reads=[], flops_per_element=4)


def _read_scalar(call: AtenCall) -> Iterator[Kernel]:
    yield Kernel(
        name="memcpy device to host",
        op=Copy(nbytes=call.inputs[0].element_size(), source=Memory.DEVICE, destination=Memory.HOST),
    )


def _cat(call: AtenCall) -> Iterator[Kernel]:
    """CatArrayBatchedCopy takes so many tensors a launch."""
    parts = [tensor for tensor in call.inputs if tensor.numel()]
    for first in range(0, len(parts), _CAT_BATCH):
        batch = parts[first : first + _CAT_BATCH]
        nbytes = sum(map(touched_nbytes, batch))
        numel = sum(tensor.numel() for tensor in batch)
        access = access_of(batch) if len({tensor.shape for tensor in batch}) == 1 else Access.CONTIGUOUS
        op = Elementwise(name="cat", read_nbytes=nbytes, written_nbytes=nbytes, numel=numel, access=access)
        yield call.kernel(op, name="cat")


_CAT_BATCH = 128
"""CAT_ARRAY_BATCH_SIZE in PyTorch's aten/src/ATen/native/cuda/Shape.cu."""

RULES: dict[str, Any] = {
    **dict.fromkeys(("_to_copy", "copy", "copy_"), _copy),
    "clone": _clone,
    "contiguous": _clone,
    **dict.fromkeys(
        ("fill", "zero", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
         "new_full", "scalar_tensor"),
        _fill,
    ),
    **dict.fromkeys(
        ("rand", "randn", "rand_like", "randn_like", "uniform", "normal", "normal_functional", "bernoulli",
         "random", "randint", "randint_like", "exponential", "geometric", "cauchy", "log_normal", "randperm"),
        _random,
    ),
    **dict.fromkeys(("arange", "linspace", "eye", "tril", "triu", "tril_indices", "triu_indices"), _index_like),
    "_local_scalar_dense": _read_scalar,
    "cat": _cat,
    "stack": _cat,
}  # fmt: skip

