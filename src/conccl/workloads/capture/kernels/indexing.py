"""Lookups, gathers and scatters, with the small sorting kernels behind their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import torch

from conccl.core.kinds import OrderKind, Pass
from conccl.core.ops import Elementwise, Gather, Order
from conccl.workloads.capture.kernels.call import AtenCall
from conccl.workloads.capture.tensors import dtype_of
from conccl.workloads.captured import Kernel


def _embedding(call: AtenCall) -> Iterator[Kernel]:
    table, indices = call.args[:2]
    if indices.numel():
        yield call.kernel(_gather(table, int(indices.numel()), Pass.FORWARD))


def _gather(table: torch.Tensor, rows: int, direction: Pass) -> Gather:
    table_rows = int(table.shape[0]) if table.dim() else 1
    cols = max(1, table.numel() // max(1, table_rows))
    return Gather(
        rows=max(1, rows),
        cols=cols,
        table_rows=max(1, table_rows),
        direction=direction,
        dtype=dtype_of(table),
    )


FEW_INDICES = 3072
"""Up to here one kernel adds rows directly; above, indices are sorted first (PyTorch's Embedding.cu)."""


def _embedding_backward(call: AtenCall) -> Iterator[Kernel]:
    grad, indices = call.args[:2]
    rows = int(indices.numel())
    table = call.outputs[0]
    yield call.elementwise(name="fill", reads=[], writes=[table])
    if rows > FEW_INDICES:
        yield call.kernel(
            Order(kind=OrderKind.SORT, rows=1, cols=rows, dtype=dtype_of(indices)), name="sort_indices"
        )
        small = Elementwise(name="segments", read_nbytes=8 * rows, written_nbytes=8 * rows, numel=rows)
        for name in ("unique_by_key", "partials_per_segment", "segment_scan", "segment_offsets"):
            yield call.kernel(small, name=name)
    yield call.kernel(_gather(table, rows, Pass.BACKWARD))
    del grad


def _index(call: AtenCall) -> Iterator[Kernel]:
    if call.outputs and call.outputs[0].numel():
        out = call.outputs[0]
        yield call.elementwise(reads=[out, *_indices(call)], flops_per_element=8)


def _indices(call: AtenCall) -> list[torch.Tensor]:
    return [tensor for tensor in call.inputs[1:] if not tensor.dtype.is_floating_point]


def _index_put(call: AtenCall) -> Iterator[Kernel]:
    """Accumulating sorts the indices first; otherwise each element is written once."""
    target = call.inputs[0]
    values = call.args[2] if len(call.args) > 2 and isinstance(call.args[2], torch.Tensor) else target
    rows = max((int(tensor.numel()) for tensor in _indices(call)), default=1)
    if call.name.startswith(("index_put", "_index_put")) and bool(call.argument("accumulate")):
        yield call.kernel(
            Order(kind=OrderKind.SORT, rows=1, cols=max(1, rows), dtype=dtype_of(_indices(call)[0]))
        )
        yield call.kernel(_gather(target, rows, Pass.BACKWARD))
        return
    yield call.elementwise(reads=[values, *_indices(call)], writes=[values], flops_per_element=8)


def _scatter(call: AtenCall) -> Iterator[Kernel]:
    index = next((tensor for tensor in call.inputs[1:] if not tensor.dtype.is_floating_point), call.inputs[0])
    moved = int(prod(index.shape))
    nbytes = moved * (index.element_size() + call.inputs[0].element_size())
    op = Elementwise(
        name=call.name,
        read_nbytes=nbytes,
        written_nbytes=moved * call.inputs[0].element_size(),
        flops=8 * moved,
        numel=moved,
    )
    if not call.name.endswith("_") and call.name != "gather":
        yield call.elementwise(name="copy", reads=[call.inputs[0]])
    yield call.kernel(op)


RULES: dict[str, Any] = {
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "_embedding_bag": _embedding,
    "_embedding_bag_forward_only": _embedding,
    "_embedding_bag_dense_backward": _embedding_backward,
    "index": _index,
    "index_select": _index,
    "take": _index,
    "take_along_dim": _index,
    "masked_select": _index,
    "nonzero": _index,
    "index_put": _index_put,
    "_index_put_impl": _index_put,
    "_unsafe_index_put": _index_put,
    "index_add": _scatter,
    "index_copy": _scatter,
    "index_fill": _scatter,
    "gather": _scatter,
    "scatter": _scatter,
    "scatter_add": _scatter,
    "scatter_reduce": _scatter,
    "masked_scatter": _scatter,
}
