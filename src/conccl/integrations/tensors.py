"""Tensors as the transports want them: dense CPU memory at an address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch

from conccl.core.errors import InputError


@cache
def dtype_name(dtype: torch.dtype, /) -> str:
    """An element type as the transports name it ("float32")."""
    return str(dtype).removeprefix("torch.")


def readable(tensor: torch.Tensor, /) -> torch.Tensor:
    """The tensor, or a dense copy of it where its memory does not hold its elements in order."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        if tensor.is_cpu:
            return tensor
    elif tensor.is_cpu and tensor.layout is torch.strided:
        return tensor.resolve_conj().resolve_neg().contiguous()
    raise InputError(
        f"a {str(tensor.layout).removeprefix('torch.')} tensor on {tensor.device}: the host transport takes"
        " dense tensors in CPU memory. Use .cpu() or .to_dense(), or a group of another backend."
    )


class Target:
    """A tensor that is written: itself, or a dense stand-in that is copied back when the call is over."""

    __slots__ = ("dense", "tensor")

    def __init__(self, tensor: torch.Tensor, /, *, filled: bool) -> None:
        """``filled``: a stand-in begins with the tensor's elements."""
        self.tensor = tensor
        dense = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
        if not dense and tensor.is_cpu and tensor.layout is torch.strided and not filled:
            self.dense = torch.empty(tensor.shape, dtype=tensor.dtype)
        else:
            self.dense = readable(tensor)

    def finish(self) -> None:
        """Copy a stand-in back."""
        if self.dense is not self.tensor:
            self.tensor.copy_(self.dense)


def finisher(targets: Sequence[Target], /) -> Callable[[], None] | None:
    """What is left to do when a call is over; None: nothing."""
    left = [one for one in targets if one.dense is not one.tensor]
    if not left:
        return None

    def finish() -> None:
        for one in left:
            one.finish()

    return finish


def overlaps(one: torch.Tensor, other: torch.Tensor, /) -> bool:
    """Whether two dense tensors share memory."""
    first, second = one.data_ptr(), other.data_ptr()
    return first < second + other.nbytes and second < first + one.nbytes


def apart(source: torch.Tensor, target: torch.Tensor, /, *, allowed: int = -1) -> torch.Tensor:
    """The source, or a copy of it if it shares memory with the target elsewhere than at the allowed byte."""
    if source.nbytes and overlaps(source, target) and source.data_ptr() - target.data_ptr() != allowed:
        return source.clone()
    return source


def require_same_dtype(first: torch.Tensor, /, *others: torch.Tensor) -> str:
    """The element type of all; refuse a mixture."""
    dtype = first.dtype
    for other in others:
        if other.dtype is not dtype:
            raise InputError(f"tensors of {dtype} and {other.dtype} in one call; all must be of one type.")
    return dtype_name(dtype)


def require_nbytes(tensor: torch.Tensor, nbytes: int, what: str, /) -> None:
    """Refuse a tensor of another size."""
    if tensor.nbytes != nbytes:
        each = tensor.element_size()
        raise InputError(
            f"{what} has {tensor.numel()} elements; it must have {nbytes // each} ({nbytes} bytes)."
        )
