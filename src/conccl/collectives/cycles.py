"""Rings in a directed graph: one shortest ring for each knot of nodes that reach each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node")


def shortest_cycles(edges: Mapping[Node, Iterable[Node]], /) -> Iterator[Sequence[Node]]:
    """A shortest cycle of every strongly connected component that has one, in the order of ``edges``."""
    for component in _components(edges):
        if len(component) > 1:
            inside = set(component)
            inner = {node: [one for one in edges.get(node, ()) if one in inside] for node in component}
            yield min((_back(inner, node) for node in component), key=len)


def _back(edges: Mapping[Node, Iterable[Node]], start: Node) -> list[Node]:
    """A shortest way from a node back to itself (there is one inside a component)."""
    came: dict[Node, Node] = {}
    ahead = deque([start])
    while ahead:
        node = ahead.popleft()
        for one in edges[node]:
            if one == start:
                way = [node]
                while way[-1] != start:
                    way.append(came[way[-1]])
                return way[::-1]
            if one not in came:
                came[one] = node
                ahead.append(one)
    raise AssertionError("a node of a strongly connected component has no way back")


def _components(edges: Mapping[Node, Iterable[Node]]) -> list[list[Node]]:
    """Strongly connected components (Tarjan's algorithm, without recursion)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    on_stack: set[Node] = set()
    found: list[list[Node]] = []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for one in rest:
                if one not in index:
                    index[one] = low[one] = len(index)
                    stack.append(one)
                    on_stack.add(one)
                    work.append((one, iter(edges.get(one, ()))))
                    break
                if one in on_stack:
                    low[node] = min(low[node], index[one])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component: list[Node] = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    found.append(component)
    return found
