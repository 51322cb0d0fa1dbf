"""Reductions and scans: TensorIterator's reduce kernel, sorts and cumulative sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import torch

from conccl.core.kinds import OrderKind
from conccl.core.ops import Order, Reduction
from conccl.workloads.capture.kernels.call import AtenCall
from conccl.workloads.capture.tensors import dtype_of
from conccl.workloads.captured import Kernel


def reduction_of(tensor: torch.Tensor, dims: Iterable[int], /) -> Reduction:
    """The reduction of these dimensions as [outer, reduced, inner] in the order in which memory holds them."""
    reduced_dims = {dim % max(1, tensor.dim()) for dim in dims}
    order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), dim))
    reduced = [position for position, dim in enumerate(order) if dim in reduced_dims]
    if not reduced:
        return Reduction(outer=max(1, tensor.numel()), reduced=1, dtype=dtype_of(tensor))
    sizes = [int(tensor.shape[dim]) for dim in order]
    inner = prod(sizes[reduced[-1] + 1 :])
    many = prod(sizes[position] for position in reduced)
    return Reduction(
        outer=max(1, tensor.numel() // max(1, inner * many)),
        reduced=max(1, many),
        inner=max(1, inner),
        dtype=dtype_of(tensor),
    )


def _dims(call: AtenCall, tensor: torch.Tensor) -> list[int]:
    for name in ("dim", "dims"):
        try:
            given = call.argument(name)
        except KeyError:
            continue
        if isinstance(given, int):
            return [given]
        if given:
            return list(given)
    return list(range(tensor.dim()))


def _reduce(call: AtenCall) -> Iterator[Kernel]:
    if call.inputs and call.inputs[0].numel():
        tensor = call.inputs[0]
        yield call.kernel(reduction_of(tensor, _dims(call, tensor)))


def _rows_and_cols(tensor: torch.Tensor, dim: int) -> tuple[int, int]:
    cols = int(tensor.shape[dim]) if tensor.dim() else 1
    return max(1, tensor.numel() // max(1, cols)), max(1, cols)


def _ordered(kind: OrderKind) -> Any:
    def rule(call: AtenCall) -> Iterator[Kernel]:
        tensor = call.inputs[0]
        try:
            dim = call.argument("dim")
        except KeyError:
            dim = -1
        rows, cols = _rows_and_cols(tensor, -1 if dim is None else dim)
        yield call.kernel(Order(kind=kind, rows=rows, cols=cols, dtype=dtype_of(tensor)))

    return rule


RULES: dict[str, Any] = {
    **dict.fromkeys(
        (
            "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "any", "all", "norm", "std",
            "var", "var_mean", "std_mean", "logsumexp", "nansum", "linalg_vector_norm", "count_nonzero", "aminmax",
            "median", "mode",
        ),
        _reduce,
    ),
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "_cummax_helper"), _ordered(OrderKind.SCAN)),
    **dict.fromkeys(("sort", "argsort", "unique2", "_unique2", "msort", "unique_dim"), _ordered(OrderKind.SORT)),
    **dict.fromkeys(("topk", "kthvalue", "multinomial"), _ordered(OrderKind.TOPK)),
}  # fmt: skip
