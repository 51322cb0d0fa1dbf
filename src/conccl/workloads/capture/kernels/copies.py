"""Copies within the device, casts, fills, random numbers and joins."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from conccl.core.kinds import Access
from conccl.core.ops import Copy, Elementwise
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.tensors import access_of, dtype_of, touched_nbytes
from conccl.workloads.captured import Kernel


def copied(source: torch.Tensor, target: torch.Tensor, /) -> Kernel:
    """What copy_ launches: the driver's copy where both are dense and of one type, else a kernel.

    As at::native::copy_device_to_device decides it.
    """
    same = source.dtype == target.dtype and source.shape == target.shape
    if same and source.stride() == target.stride() and target.is_contiguous():
        return Kernel(name="copy_", op=Copy(nbytes=touched_nbytes(source)))
    access = access_of([source, target])
    narrowing = source.dtype == torch.float32 and target.dtype in (torch.bfloat16, torch.float16)
    if access is Access.CASTING and narrowing:
        access = Access.CONTIGUOUS  # kernels of their own: eight elements a thread (CopyKernel.cu)
    op = Elementwise(
        name="copy" if source.dtype == target.dtype and access is not Access.CONTIGUOUS else "cast",
        read_nbytes=touched_nbytes(source),
        written_nbytes=touched_nbytes(target),
        numel=target.numel(),
        access=access,
    )
    return Kernel(name="copy_", op=op)


def _copy(call: AtenCall) -> Iterator[Kernel]:
    target = call.outputs[0]
    source = call.args[1] if call.name == "copy_" else call.args[0]
    if not target.numel():
        return
    if isinstance(source, torch.Tensor) and source.is_meta:
        yield copied(source, target)
    else:  # a number
        yield filled(target)


def filled(tensor: torch.Tensor, /) -> Kernel:
    """What fill_ and zero_ launch."""
    nbytes = touched_nbytes(tensor)
    op = Elementwise(name="fill", read_nbytes=0, written_nbytes=nbytes, numel=tensor.numel())
    return Kernel(name="fill_", op=op)


def cleared(nbytes: int, /, *, name: str) -> Kernel:
    """The driver's memset."""
    return Kernel(
        name=name, op=Elementwise(name="memset", read_nbytes=0, written_nbytes=nbytes, numel=nbytes)
    )


def _fill(call: AtenCall) -> Iterator[Kernel]:
    if call.outputs and call.outputs[0].numel():
        yield filled(call.outputs[0])


def _made(call: AtenCall) -> Iterator[Kernel]:
    """Numbers that depend on nothing but their place: random, arange, eye, tril."""
    if call.outputs and call.outputs[0].numel():
        reads = call.inputs if call.name in _READING else []
        yield call.elementwise(reads=reads)


_READING = frozenset({"tril", "triu", "bernoulli"})

CAT_TENSORS = 128
"""Tensors of three dimensions or fewer that one kernel joins (aten/src/ATen/native/cuda/Shape.cu)."""

CAT_TENSORS_OF_4 = 64
"""Of four dimensions."""


def _cat(call: AtenCall) -> Iterator[Kernel]:
    """One kernel for a batch of tensors; tensors of unlike types are cast one by one."""
    out = call.outputs[0]
    parts = [tensor for tensor in call.inputs if tensor.numel()]
    if len({tensor.dtype for tensor in [*parts, out]}) > 1:
        for tensor in parts:
            yield copied(tensor, out[tuple(slice(0, size) for size in tensor.shape)])
        return
    most = CAT_TENSORS if out.dim() < 4 else CAT_TENSORS_OF_4
    for first in range(0, len(parts), most):
        batch = parts[first : first + most]
        nbytes = sum(map(touched_nbytes, batch))
        numel = sum(tensor.numel() for tensor in batch)
        dense = all(tensor.is_contiguous() for tensor in batch)
        op = Elementwise(
            name="cat",
            read_nbytes=nbytes,
            written_nbytes=numel * out.element_size(),
            numel=numel,
            access=Access.CONTIGUOUS if dense and _aligned(batch) else Access.STRIDED,
        )
        yield call.kernel(op)


def _aligned(batch: list[torch.Tensor]) -> bool:
    """The vectorized kernel joins whole lines of 16 bytes."""
    return all(tensor.numel() * dtype_of(tensor).nbytes % 16 == 0 for tensor in batch)


_FILLS = (
    "fill_", "zero_", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros",
    "new_ones",
    "new_full", "scalar_tensor", "zero",
)  # fmt: skip

_MADE = (
    "rand", "randn", "rand_like", "randn_like", "uniform_", "normal_", "normal_functional", "bernoulli_",
    "bernoulli", "random_", "randint", "randint_like", "exponential_", "geometric_", "cauchy_", "log_normal_",
    "randperm", "arange", "linspace", "logspace", "eye", "tril", "triu", "tril_", "triu_", "tril_indices",
    "triu_indices", "normal", "poisson",
)  # fmt: skip

RULES: dict[str, Rule] = {
    **dict.fromkeys(("_to_copy", "copy", "copy_", "clone"), _copy),
    **dict.fromkeys(_FILLS, _fill),
    **dict.fromkeys(_MADE, _made),
    "cat": _cat,
}
