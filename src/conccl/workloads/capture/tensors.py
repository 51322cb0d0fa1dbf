"""What the kernel table asks of tensors: bytes that are really touched, and how memory can be walked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from conccl.core.kinds import Access, DType

_DTYPES: dict[torch.dtype, DType] = {
    torch.bfloat16: DType.BF16,
    torch.float16: DType.FP16,
    torch.float32: DType.FP32,
    torch.float64: DType.FP64,
    torch.float8_e4m3fn: DType.FP8_E4M3,
    torch.float8_e5m2: DType.FP8_E5M2,
    torch.int8: DType.INT8,
    torch.uint8: DType.UINT8,
    torch.int16: DType.INT16,
    torch.int32: DType.INT32,
    torch.int64: DType.INT64,
    torch.bool: DType.BOOL,
}


def dtype_of(tensor: torch.Tensor, /) -> DType:
    """The element type; complex and other rare types count as the float type of their size."""
    return _DTYPES.get(tensor.dtype, DType.FP64 if tensor.element_size() >= 8 else DType.FP32)


def touched_nbytes(tensor: torch.Tensor, /) -> int:
    """Bytes of the distinct elements: dimensions of stride 0 (expanded) are read once."""
    if not tensor.numel():
        return 0
    if tensor.is_contiguous():
        return tensor.numel() * tensor.element_size()
    distinct = prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0)
    return distinct * tensor.element_size()


def access_of(tensors: Sequence[torch.Tensor], /) -> Access:
    """How an elementwise kernel over these tensors, the written one last, walks memory.

    As TensorIterator decides it: dense in one order, or with offsets computed for each element.
    """
    shaped = [tensor for tensor in tensors if tensor.numel() > 1]
    if not shaped:
        return Access.CONTIGUOUS
    out = shaped[-1]
    if all(tensor.shape == out.shape and tensor.is_contiguous() for tensor in tensors):
        return _by_type(tensors)
    walks = {_walk(tensor) for tensor in tensors}
    if len(walks) == 1 and all(tensor.shape == out.shape for tensor in tensors) and _is_dense(out):
        return _by_type(tensors)
    fastest = _fastest_dim(out)
    large = max(map(touched_nbytes, tensors)) / FEW
    steps = [_step(tensor, fastest - out.dim()) for tensor in tensors if touched_nbytes(tensor) >= large]
    return Access.TRANSPOSED if any(step > 1 for step in steps) else Access.STRIDED


FEW = 8
"""An operand so many times smaller than the largest is read again and again from the caches, in any order."""


def _by_type(tensors: Sequence[torch.Tensor]) -> Access:
    types = {tensor.dtype for tensor in tensors if tensor.dtype != torch.bool}
    return Access.CONTIGUOUS if len(types) <= 1 else Access.CASTING


def _walk(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides of the dimensions that have more than one element: what decides the order of the walk."""
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill one block of memory in some order of dimensions."""
    expected = 1
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    for stride, size in sorted(pair for pair in pairs if pair[1] != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _fastest_dim(tensor: torch.Tensor) -> int:
    """The dimension of more than one element in which neighbours lie closest."""
    strides = tensor.stride()
    return min(
        (dim for dim, size in enumerate(tensor.shape) if size > 1),
        key=lambda dim: (strides[dim] == 0, strides[dim], -dim),
    )


def _step(tensor: torch.Tensor, dim: int) -> int:
    """How far neighbours along that dimension (counted from the last, as -1) lie apart."""
    if tensor.dim() < -dim or tensor.shape[dim] == 1:
        return 0
    return int(tensor.stride(dim))


def is_channels_last(tensor: torch.Tensor, /) -> bool:
    """Whether PyTorch takes an image, or a weight, to have its channels together in memory."""
    return bool(suggest_memory_format(tensor) != torch.contiguous_format)


def is_on_device(value: Any, /) -> bool:
    """Whether this is a tensor that the program believes to be on the GPU.

    Where `Present` is active (outside of handlers and of `Record`) it would answer for the program instead.
    """
    return isinstance(value, torch.Tensor) and value.is_meta


def dense_parts(tensors: Iterable[torch.Tensor], /) -> list[torch.Tensor]:
    """Tensors as memory holds them: those of a sparse one are its indices and its values."""
    found = []
    for tensor in tensors:
        if tensor.layout is torch.sparse_coo:
            found += [tensor._indices(), tensor._values()]
        else:
            found.append(tensor)
    return found


def tensors_in(value: Any, /) -> list[torch.Tensor]:
    """All tensors in a nest of lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    return []
