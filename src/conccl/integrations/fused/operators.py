"""The fused operators as custom ops of PyTorch: what they do, the shapes they give, and their gradients.

``torch.ops.conccl.*`` take a way as a text and a group by its name, so that compiled code can hold them.
Activations inside an op have no gradient here; `functions` puts them behind the op where one is needed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from conccl.integrations.fused.choosing import chosen
from conccl.integrations.fused.consuming import gather_rows, gathered_product, return_rows
from conccl.integrations.fused.host_link import offloaded, prefetched
from conccl.integrations.fused.job import Product
from conccl.integrations.fused.peers import Peers, agree, all_reduce_in_place, peers_of, told_of
from conccl.integrations.fused.producing import all_reduced, exchanged, reduce_scattered
from conccl.integrations.fused.products import NO_ACTIVATION, activated, finish_into, product
from conccl.integrations.fused.rows import Blocks

_library = torch.library.custom_op
_FED = "(Tensor x, Tensor weight, Tensor? bias, str activation, str way, str group) -> Tensor"


def _product(
    call: str, x: Tensor, weight: Tensor, way: str, group: str, *, rows: int | None = None
) -> Product:
    """The job that a call is, by the way chosen, after the ranks have agreed on it."""
    peers = peers_of(group)
    m, n, k = len(x) if rows is None else rows, len(weight), x.shape[1]
    picked = chosen(call, m=m, n=n, k=k, world=peers.size, dtype=x.dtype, device=x.device, way_text=way)
    agree(peers, f"{call} m={m} n={n} k={k} {x.dtype} {picked}", device=x.device)
    return Product(call=call, x=x, weight=weight, peers=peers, way=picked)


def _without_activation(activation: str) -> None:
    if activation != NO_ACTIVATION:
        raise NotImplementedError(
            f"an activation ({activation}) inside the op has no gradient; conccl's functions put it behind."
        )


# gemm_reduce_scatter


@_library("conccl::gemm_reduce_scatter", mutates_args=(), schema=_FED)
def gemm_reduce_scatter(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, way: str, group: str
) -> Tensor:
    """This rank's rows of the sum of all ranks' x[m, k] x weight[n, k]^T."""
    out = reduce_scattered(_product("gemm_reduce_scatter", x, weight, way, group))
    finish_into(out, bias, activation)
    return out if out.is_contiguous() and out.storage_offset() == 0 else out.clone()


@gemm_reduce_scatter.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, way: str, group: str) -> Tensor:
    peers = peers_of(group)
    return x.new_empty((Blocks(rows=x.shape[0], ranks=peers.size).of(peers.rank), weight.shape[0]))


def _save_product(ctx: Any, inputs: Any, output: Any) -> None:
    del output
    x, weight, bias, activation, ctx.way, ctx.group = inputs
    ctx.activation, ctx.rows, ctx.has_bias = activation, x.shape[0], bias is not None
    ctx.save_for_backward(x, weight)


def _reduce_scatter_backward(ctx: Any, gradient: Tensor) -> Any:
    _without_activation(ctx.activation)
    x, weight = ctx.saved_tensors
    into_x, whole = torch.ops.conccl.all_gather_gemm(
        gradient, weight.t(), None, NO_ACTIVATION, ctx.rows, ctx.way, ctx.group
    )
    return into_x, whole.t() @ x, gradient.sum(0) if ctx.has_bias else None, None, None, None


gemm_reduce_scatter.register_autograd(_reduce_scatter_backward, setup_context=_save_product)


# gemm_all_reduce: its output is replicated, and so is the gradient that comes back


@_library("conccl::gemm_all_reduce", mutates_args=(), schema=_FED)
def gemm_all_reduce(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, way: str, group: str
) -> Tensor:
    """The sum of all ranks' x[m, k] x weight[n, k]^T on each of them."""
    out = all_reduced(_product("gemm_all_reduce", x, weight, way, group))
    finish_into(out, bias, activation)
    return out


@gemm_all_reduce.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, way: str, group: str) -> Tensor:
    return x.new_empty((x.shape[0], weight.shape[0]))


def _all_reduce_backward(ctx: Any, gradient: Tensor) -> Any:
    _without_activation(ctx.activation)
    x, weight = ctx.saved_tensors
    return gradient @ weight, gradient.t() @ x, gradient.sum(0) if ctx.has_bias else None, None, None, None


gemm_all_reduce.register_autograd(_all_reduce_backward, setup_context=_save_product)


# replicated_gemm: a plain GEMM of what every rank has, whose input's gradient is a sum over the ranks


@_library("conccl::replicated_gemm", mutates_args=(), schema=_FED)
def replicated_gemm(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, way: str, group: str
) -> Tensor:
    """x[m, k] x weight[n, k]^T of a replicated x."""
    del way, group
    return activated(product(x, weight, bias), activation)


@replicated_gemm.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, way: str, group: str) -> Tensor:
    return x.new_empty((x.shape[0], weight.shape[0]))


def _replicated_backward(ctx: Any, gradient: Tensor) -> Any:
    _without_activation(ctx.activation)
    x, weight = ctx.saved_tensors
    into_x = None
    if ctx.needs_input_grad[0]:
        into_x = torch.ops.conccl.gemm_all_reduce(
            gradient, weight.t(), None, NO_ACTIVATION, ctx.way, ctx.group
        )
    return into_x, gradient.t() @ x, gradient.sum(0) if ctx.has_bias else None, None, None, None


replicated_gemm.register_autograd(_replicated_backward, setup_context=_save_product)


# gemm_all_to_all


@_library("conccl::gemm_all_to_all", mutates_args=(), schema=_FED)
def gemm_all_to_all(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, way: str, group: str
) -> Tensor:
    """Block d of the rows of x[m, k] x weight[n, k]^T to rank d."""
    out = exchanged(_product("gemm_all_to_all", x, weight, way, group), bias=bias)
    finish_into(out, None, activation)
    return out


@gemm_all_to_all.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, way: str, group: str) -> Tensor:
    peers = peers_of(group)
    mine = Blocks(rows=x.shape[0], ranks=peers.size).of(peers.rank)
    return x.new_empty((peers.size * mine, weight.shape[0]))


def _all_to_all_backward(ctx: Any, gradient: Tensor) -> Any:
    _without_activation(ctx.activation)
    x, weight = ctx.saved_tensors
    back = torch.ops.conccl.return_rows(gradient, ctx.rows, ctx.group)
    return back @ weight, back.t() @ x, back.sum(0) if ctx.has_bias else None, None, None, None


gemm_all_to_all.register_autograd(_all_to_all_backward, setup_context=_save_product)


@_library("conccl::return_rows", mutates_args=(), schema="(Tensor x, SymInt rows, str group) -> Tensor")
def _return_rows(x: Tensor, rows: int, group: str) -> Tensor:
    peers = peers_of(group)
    with told_of("all_to_all (a gradient)", peers):
        return return_rows(x, rows, peers)


@_return_rows.register_fake
def _(x: Tensor, rows: int, group: str) -> Tensor:
    return x.new_empty((rows, x.shape[1]))


# all_gather_gemm


@_library(
    "conccl::all_gather_gemm",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, str activation, SymInt rows, str way, str group)"
    " -> (Tensor, Tensor)",
)
def all_gather_gemm(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, rows: int, way: str, group: str
) -> tuple[Tensor, Tensor]:
    """All ranks' rows times weight[n, k]^T, and those rows; ``x`` are this rank's of ``rows``."""
    job = _product("all_gather_gemm", x, weight, way, group, rows=rows)
    out, gathered = gathered_product(job, rows, bias=bias)
    finish_into(out, None, activation)
    return out, gathered


@all_gather_gemm.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, rows: int, way: str, group: str
) -> tuple[Tensor, Tensor]:
    return x.new_empty((rows, weight.shape[0])), x.new_empty((rows, x.shape[1]))


def _save_shard(ctx: Any, inputs: Any, output: Any) -> None:
    del output
    x, weight, bias, ctx.activation, ctx.rows, ctx.way, ctx.group = inputs
    ctx.has_bias = bias is not None
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weight)


def _all_gather_backward(ctx: Any, gradient: Tensor | None, of_gathered: Tensor | None) -> Any:
    """Rows are gathered again rather than kept: sequence parallelism is there to save that memory."""
    _without_activation(ctx.activation)
    x, weight = ctx.saved_tensors
    into_x = into_weight = into_bias = None
    if gradient is not None:
        into_x = torch.ops.conccl.gemm_reduce_scatter(
            gradient, weight.t(), None, NO_ACTIVATION, ctx.way, ctx.group
        )
        if ctx.needs_input_grad[1]:
            gathered = torch.ops.conccl.gather_rows(x, ctx.rows, ctx.group)
            into_weight = gradient.t() @ gathered
        into_bias = gradient.sum(0) if ctx.has_bias else None
    if of_gathered is not None:
        one = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        more = torch.ops.conccl.gemm_reduce_scatter(
            of_gathered, one, None, NO_ACTIVATION, "serial", ctx.group
        )
        into_x = more if into_x is None else into_x + more
    return into_x, into_weight, into_bias, None, None, None, None


all_gather_gemm.register_autograd(_all_gather_backward, setup_context=_save_shard)


@_library("conccl::gather_rows", mutates_args=(), schema="(Tensor x, SymInt rows, str group) -> Tensor")
def _gather_rows(x: Tensor, rows: int, group: str) -> Tensor:
    peers: Peers = peers_of(group)
    with told_of("all_gather (for a gradient)", peers):
        found = gather_rows(x, Blocks(rows=rows, ranks=peers.size), peers)
    return found if found.is_contiguous() else found.clone()


@_gather_rows.register_fake
def _(x: Tensor, rows: int, group: str) -> Tensor:
    return x.new_empty((rows, x.shape[1]))


# The host link


_LINKED = "(Tensor x, Tensor weight, Tensor? bias, str activation, str way) -> "


@_library("conccl::gemm_offload", mutates_args=(), schema=_LINKED + "Tensor")
def gemm_offload(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, way: str) -> Tensor:
    """x[m, k] x weight[n, k]^T, in host memory."""
    return offloaded(x, weight, bias, activation=activation, way=way)


@gemm_offload.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, way: str) -> Tensor:
    return x.new_empty((x.shape[0], weight.shape[0]), device="cpu")


@_library("conccl::prefetch_gemm", mutates_args=(), schema=_LINKED + "(Tensor, Tensor)")
def prefetch_gemm(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, way: str
) -> tuple[Tensor, Tensor]:
    """x[m, k] x weight[n, k]^T of an x in host memory, and x where the weight is."""
    return prefetched(x, weight, bias, activation=activation, way=way)


@prefetch_gemm.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, way: str) -> tuple[Tensor, Tensor]:
    return weight.new_empty((x.shape[0], weight.shape[0])), x.new_empty(x.shape, device=weight.device)


def _save_linked(ctx: Any, inputs: Any, output: Any) -> None:
    del output
    x, weight, bias, ctx.activation, ctx.way = inputs
    ctx.has_bias = bias is not None
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weight)


def _offload_backward(ctx: Any, gradient: Tensor | None) -> Any:
    """The gradient comes from the host as the output went there."""
    _without_activation(ctx.activation)
    if gradient is None:
        return None, None, None, None, None
    x, weight = ctx.saved_tensors
    into_x, here = torch.ops.conccl.prefetch_gemm(gradient, weight.t(), None, NO_ACTIVATION, ctx.way)
    return into_x, here.t() @ x, here.sum(0) if ctx.has_bias else None, None, None


def _prefetch_backward(ctx: Any, gradient: Tensor | None, of_arrived: Tensor | None) -> Any:
    """X's gradient goes to the host, where x is; x itself is fetched again."""
    _without_activation(ctx.activation)
    x, weight = ctx.saved_tensors
    into_x = into_weight = into_bias = None
    if gradient is not None:
        if ctx.needs_input_grad[0]:
            into_x = torch.ops.conccl.gemm_offload(gradient, weight.t(), None, NO_ACTIVATION, ctx.way)
            into_x = into_x.to(x.device)
        into_weight = gradient.t() @ x.to(weight.device)
        into_bias = gradient.sum(0) if ctx.has_bias else None
    if of_arrived is not None:
        into_x = of_arrived.to(x.device) if into_x is None else into_x + of_arrived.to(x.device)
    return into_x, into_weight, into_bias, None, None


gemm_offload.register_autograd(_offload_backward, setup_context=_save_linked)
prefetch_gemm.register_autograd(_prefetch_backward, setup_context=_save_linked)


# A replicated parameter of which each rank uses its own rows: its gradients are added up


@_library("conccl::replicated", mutates_args=(), schema="(Tensor x, str group) -> Tensor")
def replicated(x: Tensor, group: str) -> Tensor:
    """The same values; the gradient is the sum of all ranks'."""
    del group
    return x.clone()


@replicated.register_fake
def _(x: Tensor, group: str) -> Tensor:
    return torch.empty_like(x)


@_library("conccl::summed", mutates_args=(), schema="(Tensor x, str group) -> Tensor")
def summed(x: Tensor, group: str) -> Tensor:
    """The sum of all ranks' tensors."""
    peers = peers_of(group)
    total = x.clone()
    with told_of("all_reduce (of a gradient)", peers):
        if peers.size > 1:
            all_reduce_in_place(total, peers).wait()
    return total


@summed.register_fake
def _(x: Tensor, group: str) -> Tensor:
    return torch.empty_like(x)


def _save_group(ctx: Any, inputs: Any, output: Any) -> None:
    del output
    ctx.group = inputs[1]


def _replicated_sum(ctx: Any, gradient: Tensor) -> Any:
    return torch.ops.conccl.summed(gradient, ctx.group), None


replicated.register_autograd(_replicated_sum, setup_context=_save_group)
