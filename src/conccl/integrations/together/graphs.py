"""Independent matmuls found in a traced graph: `torch.compile(model, backend=together_backend)`.

Matmuls that have the same number of matmuls before them on their longest way in cannot depend on each other.
Those of one such depth become one call that runs them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func

from conccl.integrations.together.matmul import matmul_together

MOST = 16
"""Matmuls of one call: no device gains by more at once."""


@torch.library.custom_op("conccl::matmuls", mutates_args=())
def matmuls(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The products of the first list's matrices with the second's."""
    return matmul_together(list(zip(a, b, strict=True)))


@matmuls.register_fake
def _(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [one.new_empty((one.shape[0], other.shape[1])) for one, other in zip(a, b, strict=True)]


def group_matmuls(module: torch.fx.GraphModule, /) -> int:
    """Have independent ``aten.mm`` and ``aten.addmm`` of the graph run together; returns how many calls."""
    groups = [group for group in _independent(module.graph) if len(group) > 1]
    for group in groups:
        _replace(module.graph, group)
    if groups:
        _put_in_order(module.graph)
        module.graph.lint()
        module.recompile()
    return len(groups)


def together_backend(module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """A backend of `torch.compile`: forward and backward as they are, independent matmuls together."""

    def compiled(graph: torch.fx.GraphModule, _inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        group_matmuls(graph)
        return make_boxed_func(graph.forward)

    return aot_autograd(fw_compiler=compiled, bw_compiler=compiled)(module, inputs)


def _independent(graph: torch.fx.Graph) -> list[list[torch.fx.Node]]:
    depth: dict[torch.fx.Node, int] = {}
    by_depth: dict[tuple[int, Any, Any], list[torch.fx.Node]] = {}
    for node in graph.nodes:
        before = max((depth[one] for one in node.all_input_nodes), default=0)
        if _is_matmul(node):
            value = node.meta.get("val")
            kind = (before, getattr(value, "dtype", None), getattr(value, "device", None))
            by_depth.setdefault(kind, []).append(node)
            before += 1
        depth[node] = before
    return [group[at : at + MOST] for group in by_depth.values() for at in range(0, len(group), MOST)]


def _is_matmul(node: torch.fx.Node) -> bool:
    if node.op != "call_function":
        return False
    if node.target is torch.ops.aten.addmm.default:
        return not node.kwargs  # beta and alpha are 1
    return node.target is torch.ops.aten.mm.default


def _replace(graph: torch.fx.Graph, group: Sequence[torch.fx.Node]) -> None:
    """One call for all, behind the last of them; biases are added behind it."""
    operands = [node.args[-2:] for node in group]
    with graph.inserting_after(group[-1]):
        together = graph.call_function(
            torch.ops.conccl.matmuls.default, ([a for a, _ in operands], [b for _, b in operands])
        )
    previous = together
    for index, node in enumerate(group):
        with graph.inserting_after(previous):
            value = previous = graph.call_function(_item, (together, index))
        if node.target is torch.ops.aten.addmm.default:
            with graph.inserting_after(previous):
                value = previous = graph.call_function(torch.ops.aten.add.Tensor, (value, node.args[0]))
        value.meta.update(node.meta)
        node.replace_all_uses_with(value)
        graph.erase_node(node)


def _put_in_order(graph: torch.fx.Graph) -> None:
    """Move what uses a call's products behind the call, in the order in which it stood.

    Nodes only move back, and stay before the writes to inputs that end a graph.
    """
    placed: set[torch.fx.Node] = set()
    waiting: list[torch.fx.Node] = []
    for node in list(graph.nodes):
        waiting.append(node)
        last = node
        for one in list(waiting):
            if all(other in placed for other in one.all_input_nodes):
                if one is not node:
                    last.append(one)
                    last = one
                placed.add(one)
                waiting.remove(one)


def _item(values: Sequence[torch.Tensor], index: int) -> torch.Tensor:
    return values[index]
