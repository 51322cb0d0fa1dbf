"""Contended times for Inductor's overlap scheduler, which else assumes that nothing slows down together.

::

    import torch._inductor.config as inductor
    inductor.aten_distributed_optimizations.custom_runtime_estimation = contended_times("h200-sxm")

Products (mm, addmm, bmm, baddbmm) and functional collectives get the time that they take beside each other;
for every other node the answer is None, and PyTorch estimates it as it does without.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import fx

from conccl.core.errors import InputError
from conccl.core.hardware import System
from conccl.core.kinds import CollectiveKind, DType
from conccl.core.ops import Collective, Gemm
from conccl.costs.catalogue import load_device, system_of
from conccl.tune.contended import contended_communication_ns, contended_compute_ns

Estimate = Callable[..., "float | None"]
"""(node, override_size=None) -> ms. PyTorch 2.11 calls it with the node alone, 2.12 and later with both."""

_DTYPES = {
    torch.bfloat16: DType.BF16,
    torch.float16: DType.FP16,
    torch.float32: DType.FP32,
    torch.float64: DType.FP64,
}

_OPERANDS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
"""Product -> the place of its left operand; the right one follows."""

_COLLECTIVES = {
    "all_gather_into_tensor": CollectiveKind.ALL_GATHER,
    "reduce_scatter_tensor": CollectiveKind.REDUCE_SCATTER,
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "all_to_all_single": CollectiveKind.ALL_TO_ALL,
}

_MS = 1e6


def contended_times(device: str, /, *, gpus: int | None = None) -> Estimate:
    """The function to give Inductor: times in ms on this device, each shape simulated once.

    ``gpus`` is how many ranks share the link with a product's collective; one node's unless given.
    """
    known = load_device(device)
    system = system_of(known, gpus=gpus or known.gpus_per_node)
    if system.gpus < 2:
        raise InputError("contended times need gpus=2 or more: with one, nothing is communicated.")

    @functools.lru_cache(maxsize=4096)
    def compute_ms(op: Gemm) -> float:
        return contended_compute_ns(op, system=system) / _MS

    @functools.lru_cache(maxsize=4096)
    def communication_ms(op: Collective) -> float:
        wide = System(device=known, gpus=op.ranks, gpus_per_node=known.gpus_per_node, rail=known.rail)
        return contended_communication_ns(op, system=wide) / _MS

    def estimate(node: fx.Node, override_size: int | None = None) -> float | None:
        product = product_of(node)
        if product is not None:
            return compute_ms(product)
        collective = collective_of(node, nbytes=override_size)
        try:
            return None if collective is None else communication_ms(collective)
        except InputError:  # ranks that fill no whole nodes: PyTorch's own estimate serves
            return None

    return estimate


def product_of(node: fx.Node, /) -> Gemm | None:
    """The product that a node does; None where it does none, or its sizes or types are not known."""
    place = _OPERANDS.get(_name(node))
    if place is None or len(node.args) < place + 2:
        return None
    left, right = (_value(argument) for argument in node.args[place : place + 2])
    if left is None or right is None or left.dtype not in _DTYPES:
        return None
    sizes = [*map(_size, left.shape[-2:]), _size(right.shape[-1])]
    batch = _size(left.shape[0]) if left.dim() == 3 else 1
    if batch is None or None in sizes or 0 in (*sizes, batch):
        return None
    m, k, n = sizes
    return Gemm(m=m, n=n, k=k, batch=batch, dtype=_DTYPES[left.dtype])  # type: ignore[arg-type]


def collective_of(node: fx.Node, /, *, nbytes: int | None = None) -> Collective | None:
    """The collective that a node starts, of so many bytes of its input (None: as it is)."""
    namespace, _, name = _name(node).partition("::")
    kind = _COLLECTIVES.get(name.removesuffix("_out"))
    if namespace != "_c10d_functional" or kind is None or not node.args:
        return None
    value = _value(node.args[0])
    ranks = _ranks(node)
    if value is None or not ranks or ranks < 2:
        return None
    numel = [_size(size) for size in value.shape]
    if nbytes is None:
        if None in numel:
            return None
        nbytes = math.prod(numel) * value.element_size()  # type: ignore[arg-type]
    whole = nbytes * ranks if kind is CollectiveKind.ALL_GATHER else nbytes
    return Collective(kind=kind, nbytes=whole, ranks=ranks, dtype=_DTYPES.get(value.dtype, DType.BF16))


def _ranks(node: fx.Node) -> int | None:
    """From the argument, or else from the group."""
    target: Any = node.target
    names = [argument.name for argument in target._schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if isinstance(given.get("group_size"), int):
        return int(given["group_size"])
    from torch.distributed.distributed_c10d import _get_group_size_by_name  # noqa: PLC0415

    group = given.get("group_name")
    try:
        return int(_get_group_size_by_name(cast("Any", group))) if isinstance(group, str) else None
    except (KeyError, RuntimeError, ValueError):  # a group that this process does not have
        return None


def _name(node: fx.Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else str(schema.name)


def _value(argument: Any) -> torch.Tensor | None:
    value = argument.meta.get("val") if isinstance(argument, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _size(size: Any) -> int | None:
    """A size as a number; the hint of a symbolic one."""
    if isinstance(size, int):
        return size
    hint = getattr(getattr(size, "node", None), "hint", None)
    return int(hint) if isinstance(hint, int) else None
