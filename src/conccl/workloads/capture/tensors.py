"""What the kernel table asks of tensors: bytes that are really touched, and how memory can be walked."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import torch

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
    distinct = prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0)
    return distinct * tensor.element_size() if tensor.numel() else 0


def is_dense(tensor: torch.Tensor, /) -> bool:
    """Whether the elements fill one block of memory in some order of dimensions."""
    expected = 1
    order = sorted(
        (stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1
    )
    for stride, size in order:
        if stride != expected:
            return False
        expected *= size
    return True


def access_of(tensors: Iterable[torch.Tensor], /) -> Access:
    """How an elementwise kernel over these tensors walks memory, as TensorIterator decides it."""
    shaped = [tensor for tensor in tensors if tensor.dim() > 0 and tensor.numel() > 1]
    if not shaped:
        return Access.CONTIGUOUS
    shapes = {tuple(tensor.shape) for tensor in shaped}
    strides = {_walk(tensor) for tensor in shaped}
    if len(shapes) > 1 or len(strides) > 1 or not all(is_dense(tensor) for tensor in shaped):
        return Access.STRIDED
    return Access.CONTIGUOUS if len({tensor.dtype for tensor in shaped}) == 1 else Access.CASTING


def _walk(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides of the dimensions that have more than one element: what decides the order of the walk."""
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1)


def is_on_device(value: Any, /) -> bool:
    """Whether this is a tensor that the program believes to be on the GPU.

    Where `Present` is active (outside of handlers and of `Record`) it would answer for the program instead.
    """
    return isinstance(value, torch.Tensor) and value.is_meta


def tensors_in(value: Any, /) -> list[torch.Tensor]:
    """All tensors in a nest of lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    return []
