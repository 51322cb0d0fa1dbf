"""Fused operators as functions: a GEMM and the collective before or behind it, with gradients.

``weight`` is [n, k] as in `torch.nn.functional.linear`. ``x`` is [..., k]; its rows (all dimensions but the
last) are divided among the ranks in equal blocks along the first dimension. A matrix may have any number of
rows: blocks are then those of `torch.chunk`. ``group`` is a process group (gloo, conccl or NCCL), its name,
or None for the default one. ``way`` is "auto" (`conccl.strategies.fused_choice` picks), "serial",
"chunked:8", "chunked:8:shrinking", "chunked:2:staggered" or "tracked:8".

All ranks make the same calls in the same order, with the same sizes, dtype and way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from conccl.core.errors import InputError, UnknownNameError
from conccl.integrations.fused import operators
from conccl.integrations.fused.peers import group_name, group_size
from conccl.integrations.fused.products import ACTIVATIONS, NO_ACTIVATION, activated
from conccl.strategies import ways
from conccl.strategies.ways import AUTO

Given = tuple[Tensor, Tensor, Tensor | None]
"""x, weight and bias of a call."""

DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32, torch.float64})
"""What the operators compute in."""


def gemm_reduce_scatter(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = NO_ACTIVATION,
    group: Any = None,
    way: str = AUTO,
) -> Tensor:
    """``activation(reduce_scatter(x @ weight.T) + bias)``: this rank's rows of the ranks' sum.

    ``x`` [m, ..., k] and ``weight`` [n, k] hold this rank's share of the inner dimension. Returns
    [m / ranks, ..., n]. ``bias`` is added once, behind the sum; its gradient is of this rank's rows.
    """
    given = x, weight, bias = _cast((x, weight, bias))
    name = _checked(given, activation=activation, way=way, group=group)
    ranks = group_size(name)
    _require_even(x, ranks)
    out = _run(operators.gemm_reduce_scatter, given, activation=activation, way=way, name=name)
    return _shaped(out, x, x.shape[0] // ranks)


def gemm_all_reduce(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = NO_ACTIVATION,
    group: Any = None,
    way: str = AUTO,
) -> Tensor:
    """``activation(all_reduce(x @ weight.T) + bias)`` on every rank.

    The output is replicated: every rank goes on with the same values, and the gradient that comes back is
    taken to be the same on all of them (as Megatron-LM does it), so nothing is communicated backward.
    """
    given = x, weight, bias = _cast((x, weight, bias))
    name = _checked(given, activation=activation, way=way, group=group)
    out = _run(operators.gemm_all_reduce, given, activation=activation, way=way, name=name)
    return _shaped(out, x, x.shape[0])


def gemm_all_to_all(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = NO_ACTIVATION,
    group: Any = None,
    way: str = AUTO,
) -> Tensor:
    """``all_to_all(activation(x @ weight.T + bias))``: block d of the rows goes to rank d.

    Returns one block of rows from each rank, in their order.
    """
    given = x, weight, bias = _cast((x, weight, bias))
    name = _checked(given, activation=activation, way=way, group=group)
    _require_even(x, group_size(name))
    out = _run(operators.gemm_all_to_all, given, activation=activation, way=way, name=name)
    return _shaped(out, x, x.shape[0])


def all_gather_gemm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = NO_ACTIVATION,
    group: Any = None,
    way: str = AUTO,
    rows: int | None = None,
) -> Tensor:
    """``activation(all_gather(x) @ weight.T + bias)``: every rank's rows times this rank's weight.

    ``x`` [m, ..., k] are this rank's rows. Returns [m * ranks, ..., n]. ``rows`` is for a matrix whose blocks
    are not all of one length: how many rows it has in all.
    """
    given = x, weight, bias = _cast((x, weight, bias))
    name = _checked(given, activation=activation, way=way, group=group)
    matrix = x.flatten(0, -2)
    if rows is not None and x.dim() > 2:
        raise InputError(f"rows={rows} is for matrices; x has {x.dim()} dimensions.")
    total = matrix.shape[0] * group_size(name) if rows is None else rows
    inside, behind = _activation_place(given, activation)
    out, _ = operators.all_gather_gemm(matrix, weight, bias, inside, total, way, name)
    out = activated(out, behind)
    return _shaped(out, x, x.shape[0] * group_size(name))


def replicated_gemm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = NO_ACTIVATION,
    group: Any = None,
    way: str = AUTO,
) -> Tensor:
    """``activation(x @ weight.T + bias)`` of an x that all ranks have alike.

    Nothing is communicated forward; backward, x's gradient is a `gemm_all_reduce`.
    """
    given = x, weight, bias = _cast((x, weight, bias))
    name = _checked(given, activation=activation, way=way, group=group)
    out = _run(operators.replicated_gemm, given, activation=activation, way=way, name=name)
    return _shaped(out, x, x.shape[0])


def gemm_offload(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = NO_ACTIVATION,
    way: str = AUTO,
) -> Tensor:
    """``activation(x @ weight.T + bias)`` in host memory, pinned where x is on a GPU.

    Rows travel while the next ones are made, by copy engines and so without SMs. Returns when all are there.
    """
    given = x, weight, bias = _cast((x, weight, bias))
    _check(given, activation=activation, way=way)
    inside, behind = _activation_place(given, activation)
    out = activated(operators.gemm_offload(x.flatten(0, -2), weight, bias, inside, way), behind)
    return _shaped(out, x, x.shape[0])


def prefetch_gemm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = NO_ACTIVATION,
    way: str = AUTO,
) -> Tensor:
    """``activation(x @ weight.T + bias)`` of an x in host memory (pinned, or nothing overlaps), on the GPU.

    Rows are multiplied as they arrive.
    """
    given = x, weight, bias = _cast((x, weight, bias))
    _check(given, activation=activation, way=way, x_on_host=True)
    inside, behind = _activation_place(given, activation)
    out, _ = operators.prefetch_gemm(x.flatten(0, -2), weight, bias, inside, way)
    return _shaped(activated(out, behind), x, x.shape[0])


def _cast(given: Given, /) -> Given:
    """As autocast casts what goes into a linear layer, where it is on: all but fp64."""
    x, weight, bias = given
    kind = weight.device.type
    if not torch.is_autocast_enabled(kind) or torch.float64 in (x.dtype, weight.dtype):
        return given
    dtype = torch.get_autocast_dtype(kind)
    return x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


def _run(op: Any, given: Given, /, *, activation: str, way: str, name: str) -> Tensor:
    x, weight, bias = given
    inside, behind = _activation_place(given, activation)
    return activated(op(x.flatten(0, -2), weight, bias, inside, way, name), behind)


def _activation_place(given: Given, activation: str, /) -> tuple[str, str]:
    """Inside the op, in place; or behind it as an op of PyTorch's, where a gradient will be wanted."""
    wanted = any(one is not None and one.requires_grad for one in given)
    if torch.is_grad_enabled() and wanted:
        return NO_ACTIVATION, activation
    return activation, NO_ACTIVATION


def _shaped(out: Tensor, x: Tensor, first: int) -> Tensor:
    """The rows in x's dimensions again; a matrix stays as it is."""
    return out if x.dim() == 2 else out.view(first, *x.shape[1:-1], out.shape[-1])


def _require_even(x: Tensor, ranks: int) -> None:
    if x.dim() > 2 and x.shape[0] % ranks:
        raise InputError(
            f"x is {tuple(x.shape)}: its first dimension is divided among {ranks} ranks and must be a"
            " multiple of them (matrices may have any number of rows)."
        )


def _checked(given: Given, /, *, activation: str, way: str, group: Any) -> str:
    """The group's name, after everything that can be wrong with a call on this rank."""
    _check(given, activation=activation, way=way)
    return str(group_name(group))


def _check(given: Given, /, *, activation: str, way: str, x_on_host: bool = False) -> None:
    x, weight, bias = given
    if x_on_host and x.device.type != "cpu":
        raise InputError(f"x is on {x.device}; prefetch_gemm takes an x in host memory.")
    where = weight.device if x_on_host else x.device
    if activation not in ACTIVATIONS:
        raise UnknownNameError(kind="activation", name=activation, known=ACTIVATIONS)
    if way != AUTO:
        ways.way(way)
    if x.dim() < 2 or weight.dim() != 2:
        raise InputError(
            f"x is {tuple(x.shape)} and weight {tuple(weight.shape)}; they must be [..., k] of two"
            " dimensions or more, and [n, k]."
        )
    if x.shape[-1] != weight.shape[1]:
        raise InputError(
            f"x is {tuple(x.shape)} and weight {tuple(weight.shape)}: the last dimensions must be equal."
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise InputError(f"bias is {tuple(bias.shape)}; it must be ({weight.shape[0]},), weight's rows.")
    for what, one in (("weight", weight), ("bias", bias)):
        if one is not None and (one.dtype != x.dtype or one.device != where):
            raise InputError(
                f"{what} is {one.dtype} on {one.device}; it must be {x.dtype} on {where}, as x is."
            )
    if x.dtype not in DTYPES:
        raise InputError(f"x is {x.dtype}; it must be one of {', '.join(sorted(map(str, DTYPES)))}.")
