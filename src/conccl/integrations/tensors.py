"""Tensors as the transports want them: dense CPU memory at an address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate

import torch

from conccl.core.errors import InputError


@cache
def dtype_name(dtype: torch.dtype, /) -> str:
    """An element type as the transports name it ("float32")."""
    return str(dtype).removeprefix("torch.")


def readable(tensor: torch.Tensor, /) -> torch.Tensor:
    """The tensor, or a dense copy of it where its memory does not hold its elements in order."""
    _require_memory(tensor)
    return tensor if _is_dense(tensor) else tensor.resolve_conj().resolve_neg().contiguous()


def _require_memory(tensor: torch.Tensor) -> None:
    """Refuse what does not lie in CPU memory as elements at strides."""
    if not tensor.is_cpu or tensor.layout is not torch.strided:
        raise InputError(
            f"a {str(tensor.layout).removeprefix('torch.')} tensor on {tensor.device}: the host transport"
            " takes dense tensors in CPU memory. Use .cpu() or .to_dense(), or a group of another backend."
        )


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


class Target:
    """A tensor that is written: itself, or a dense stand-in that is copied back when the call is over."""

    __slots__ = ("dense", "tensor")

    def __init__(self, tensor: torch.Tensor, /, *, filled: bool) -> None:
        """``filled``: a stand-in begins with the tensor's elements."""
        self.tensor = tensor
        if filled:
            self.dense = readable(tensor)
            return
        _require_memory(tensor)
        self.dense = tensor if _is_dense(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)

    def finish(self) -> None:
        """Copy a stand-in back."""
        if self.dense is not self.tensor:
            self.tensor.detach().copy_(self.dense)


def finisher(targets: Sequence[Target], /) -> Callable[[], None] | None:
    """What is left to do when a call is over; None: nothing."""
    left = [one for one in targets if one.dense is not one.tensor]
    if not left:
        return None

    def finish() -> None:
        for one in left:
            one.finish()

    return finish


def apart(source: torch.Tensor, target: torch.Tensor, /, *, allowed: int | None = None) -> torch.Tensor:
    """The source, or a copy if it shares memory with the target otherwise than at this byte of the target."""
    first, second = source.data_ptr(), target.data_ptr()
    together = first < second + target.nbytes and second < first + source.nbytes
    return source.clone() if together and first - second != allowed else source


def require_same_dtype(first: torch.Tensor, /, *others: torch.Tensor) -> None:
    """Refuse a mixture of element types."""
    dtype = first.dtype
    for other in others:
        if other.dtype is not dtype:
            raise InputError(f"tensors of {dtype} and {other.dtype} in one call; all must be of one type.")


def require_nbytes(tensor: torch.Tensor, nbytes: int, what: str, /) -> None:
    """Refuse a tensor of another size."""
    if tensor.nbytes != nbytes:
        each = tensor.element_size()
        raise InputError(f"{what} has {tensor.numel()} elements; it must have {nbytes / each:g}.")


def addresses_of(tensor: torch.Tensor, sizes: int | Sequence[int], count: int = 0, /) -> list[int]:
    """Where consecutive blocks of a tensor lie: of these bytes each, or ``count`` equal ones."""
    first = tensor.data_ptr()
    if isinstance(sizes, int):
        return [first + one * sizes for one in range(count)]
    return list(accumulate(sizes[:-1], initial=first))


def rows_nbytes(tensor: torch.Tensor, splits: Sequence[int], count: int, what: str, /) -> list[int]:
    """Bytes of each rank's rows: so many as the splits say, equally many without."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not splits:
        if rows % count and tensor.nbytes:
            raise InputError(
                f"the {what} has {rows} rows, which {count} ranks do not divide. Give split sizes."
            )
        return [tensor.nbytes // count] * count
    if len(splits) != count or sum(splits) != rows or min(splits) < 0:
        raise InputError(f"{what} splits {list(splits)} must be {count} counts that sum to its {rows} rows.")
    row = tensor.nbytes // rows if rows else 0
    return [one * row for one in splits]
