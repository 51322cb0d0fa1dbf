"""GEMMs of row blocks by the vendor's library, straight into a buffer, and what is done to their output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from conccl.core.errors import UnknownNameError
from conccl.strategies.cutting import ROW_TILE

NO_ACTIVATION = "none"

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    NO_ACTIVATION: lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}
"""What can follow a GEMM, by name."""


def activated(x: Tensor, activation: str, /) -> Tensor:
    """The activation of every element."""
    if activation not in ACTIVATIONS:
        raise UnknownNameError(kind="activation", name=activation, known=ACTIVATIONS)
    return ACTIVATIONS[activation](x)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None, /) -> Tensor:
    """x[m, k] x weight[n, k]^T, and the bias of each column."""
    return functional.linear(x, weight, bias)


def product_into(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None, /) -> None:
    """As `product`, into rows that are there."""
    if bias is None:
        torch.mm(x, weight.t(), out=out)
    else:
        torch.addmm(bias, x, weight.t(), out=out)


def products_into(outs: Sequence[Tensor], xs: Sequence[Tensor], weight: Tensor, /) -> None:
    """Several row blocks; where they are alike and on a GPU, one kernel: small ones would not fill it."""
    if len(outs) > 1 and outs[0].is_cuda and _are_alike(outs) and _are_alike(xs):
        _together(_stacked(outs), _stacked(xs), weight)
        return
    for out, x in zip(outs, xs, strict=True):
        if len(out):
            product_into(out, x, weight)


def _together(outs: Tensor, xs: Tensor, weight: Tensor) -> None:
    """One batched kernel where blocks fill tiles; else one GEMM of their rows, copied behind each other."""
    if xs.shape[1] % ROW_TILE == 0 or not outs.is_contiguous():
        torch.bmm(xs, weight.t().expand(len(outs), -1, -1), out=outs)
    else:
        torch.mm(xs.flatten(0, 1), weight.t(), out=outs.flatten(0, 1))


def finish_into(out: Tensor, bias: Tensor | None, activation: str, /) -> None:
    """Bias and activation of what has been reduced, in place."""
    if bias is not None:
        out.add_(bias)
    if activation != NO_ACTIVATION:
        out.copy_(activated(out, activation))


def _are_alike(blocks: Sequence[Tensor]) -> bool:
    """Equal in shape and equally far apart in one buffer."""
    first = blocks[0]
    step = blocks[1].storage_offset() - first.storage_offset()
    return step > 0 and all(
        one.shape == first.shape
        and one.stride() == first.stride()
        and one.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        and one.storage_offset() == first.storage_offset() + index * step
        for index, one in enumerate(blocks)
    )


def _stacked(blocks: Sequence[Tensor]) -> Tensor:
    """Blocks that are alike as one tensor of three dimensions, nothing copied."""
    first = blocks[0]
    step = blocks[1].storage_offset() - first.storage_offset()
    return first.as_strided((len(blocks), *first.shape), (step, *first.stride()), first.storage_offset())
