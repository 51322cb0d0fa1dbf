"""Lookups, gathers and scatters, with the sorts behind their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch

from conccl.core.kinds import Access, Memory, OrderKind, Pass
from conccl.core.ops import Copy, Elementwise, Gather, Order
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.kernels.copies import copied
from conccl.workloads.capture.kernels.libraries import sort_launches
from conccl.workloads.capture.tensors import dtype_of, tensors_in, touched_nbytes
from conccl.workloads.captured import Kernel


def _rows_of(table: torch.Tensor, rows: int, direction: Pass) -> Gather:
    table_rows = max(1, int(table.shape[0])) if table.dim() else 1
    return Gather(
        rows=max(1, rows),
        cols=max(1, table.numel() // table_rows),
        table_rows=table_rows,
        direction=direction,
        dtype=dtype_of(table),
    )


def _embedding(call: AtenCall) -> Iterator[Kernel]:
    table, indices = call.args[:2]
    if indices.numel():
        yield call.kernel(_rows_of(table, int(indices.numel()), Pass.FORWARD))


FEW_INDICES = 3072
"""Up to here one kernel adds rows; above, indices are sorted (aten/src/ATen/native/cuda/Embedding.cu)."""

SEGMENT_KERNELS = 10
"""arange, and after the sort what finds equal indices and adds their rows."""


def _embedding_backward(call: AtenCall) -> Iterator[Kernel]:
    """A cleared gradient, and rows added into it."""
    indices = call.args[1]
    count = int(indices.numel())
    table = call.outputs[0]
    if not count or not table.numel():
        return
    launches = 2
    if count > FEW_INDICES:
        launches = 1 + SEGMENT_KERNELS + sort_launches(count, key_bits=8 * indices.element_size())
    yield call.kernel(_rows_of(table, count, Pass.BACKWARD), launches=launches)


def _embedding_bag(call: AtenCall) -> Iterator[Kernel]:
    """Rows are added as they are looked up: one result a bag."""
    table, indices = call.args[:2]
    if not indices.numel():
        return
    bags = call.outputs[0]
    read = int(indices.numel()) * (int(table.shape[1]) * table.element_size() + indices.element_size())
    op = Elementwise(
        name="embedding_bag",
        read_nbytes=read,
        written_nbytes=touched_nbytes(bags),
        numel=bags.numel(),
        access=Access.STRIDED,
    )
    yield call.kernel(op)


def _embedding_bag_backward(call: AtenCall) -> Iterator[Kernel]:
    """Indices and counters, a sort whatever their number, and rows added into a cleared gradient."""
    grad, indices, table = call.args[0], call.args[1], call.outputs[0]
    count = int(indices.numel())
    if not count:
        return
    if not grad.is_contiguous():
        yield copied(grad, torch.empty(grad.shape, dtype=grad.dtype, device="meta"))
    launches = 1 + SEGMENT_KERNELS + sort_launches(count, key_bits=8 * indices.element_size())
    yield call.kernel(_rows_of(table, count, Pass.BACKWARD), launches=launches)


def _index(call: AtenCall) -> Iterator[Kernel]:
    """Elements by indices; indices on the host are copied first."""
    yield from _indices_from_host(call)
    out = call.outputs[0]
    if not out.numel():
        return
    op = _looked_up(call.inputs[0], out)
    if op.cols > 1 or call.name == "index_select":
        yield call.kernel(op)
    else:  # single elements
        indices = [tensor for tensor in call.inputs[1:] if not tensor.dtype.is_floating_point]
        yield call.elementwise(reads=[out, *indices], access=Access.STRIDED)


def _indices_from_host(call: AtenCall) -> Iterator[Kernel]:
    for tensor in tensors_in((call.args, call.kwargs)):
        if not tensor.is_meta and tensor.dim():
            nbytes = tensor.numel() * tensor.element_size()
            op = Copy(nbytes=nbytes, source=Memory.HOST, destination=Memory.DEVICE)
            yield Kernel(name="copy_", op=op)


def _looked_up(source: torch.Tensor, out: torch.Tensor) -> Gather:
    """Rows of as many elements as stay together."""
    together = 1
    for size, other in zip(reversed(source.shape[1:]), reversed(out.shape), strict=False):
        if size != other:
            break
        together *= int(size)
    rows = max(1, out.numel() // max(1, together))
    table_rows = max(1, source.numel() // max(1, together))
    return Gather(rows=rows, cols=max(1, together), table_rows=table_rows, dtype=dtype_of(source))


def _index_put(call: AtenCall) -> Iterator[Kernel]:
    """Accumulating sorts the indices first; otherwise each element is written once."""
    yield from _indices_from_host(call)
    if not call.name.endswith("_"):
        yield copied(call.inputs[0], call.outputs[0])
    indices = [tensor for tensor in tensors_in(call.args[1]) if tensor.dtype != torch.bool]
    values = call.args[2]
    rows = max((int(tensor.numel()) for tensor in indices), default=1)
    target = call.inputs[0]
    if not call.argument("accumulate"):
        yield call.elementwise(reads=[values, *indices], writes=[values], access=Access.STRIDED)
        return
    yield from _flat_indices(call, indices)
    if not values.is_contiguous():
        yield copied(values, torch.empty(values.shape, dtype=values.dtype, device="meta"))
    indexed = prod(size for size, index in zip(target.shape, call.args[1], strict=False) if index is not None)
    sort = Order(kind=OrderKind.SORT, rows=1, cols=max(1, rows), dtype=dtype_of(indices[0]))
    yield call.kernel(sort, launches=sort_launches(rows, key_bits=indexed.bit_length()))
    nbytes = touched_nbytes(values)
    op = Elementwise(
        name="index_put",
        read_nbytes=2 * nbytes,
        written_nbytes=nbytes,
        numel=max(1, values.numel()),
        access=Access.TRANSPOSED if target.dim() == len(call.args[1]) else Access.STRIDED,
    )
    yield call.kernel(op)


def _flat_indices(call: AtenCall, indices: list[torch.Tensor]) -> Iterator[Kernel]:
    """Each index made positive and scaled by its stride, their sum, and the places to be sorted with them."""
    for position, index in enumerate(indices):
        for kind in ("remainder", "mul", "add")[: 3 if position else 2]:
            yield call.elementwise(kind=kind, reads=[index], writes=[index])
    for kind in ("div", "arange"):
        yield call.elementwise(kind=kind, reads=indices[:1], writes=indices[:1])


def _coalesce(call: AtenCall) -> Iterator[Kernel]:
    """Indices made flat and sorted, equal ones found, their rows added."""
    indices, values = call.inputs
    if values.numel():
        count = int(indices.shape[-1])
        yield call.elementwise(kind="flatten", reads=[indices], writes=[indices])
        sort = Order(kind=OrderKind.SORT, rows=1, cols=max(1, count), dtype=dtype_of(indices))
        yield call.kernel(sort, launches=2 + sort_launches(count, key_bits=64))
        yield call.elementwise(reads=[values, indices], writes=[values], access=Access.STRIDED)


def _scatter(call: AtenCall) -> Iterator[Kernel]:
    """One access an index; what is not done in place is copied first."""
    target = call.inputs[0]
    if not call.name.endswith("_") and call.name != "gather":
        yield copied(target, call.outputs[0])
    yield from _indices_from_host(call)
    index = next((t for t in call.inputs[1:] if not t.dtype.is_floating_point), target)
    moved = int(index.numel())
    if moved:
        op = Elementwise(
            name=call.name.removesuffix("_"),
            read_nbytes=moved * (index.element_size() + target.element_size()),
            written_nbytes=moved * target.element_size(),
            numel=moved,
            access=Access.STRIDED,
        )
        yield call.kernel(op)


def _row_scatter(call: AtenCall) -> Iterator[Kernel]:
    """Whole rows added or written by an index a row."""
    target = call.inputs[0]
    if not call.name.endswith("_"):
        yield copied(target, call.outputs[0])
    source = call.args[-1] if isinstance(call.args[-1], torch.Tensor) else target
    source = next((t for t in reversed(call.inputs) if t.dtype == target.dtype), source)
    if source.numel():
        rows = max(1, int(source.shape[call.argument("dim")]) if source.dim() else 1)
        op = Elementwise(
            name="index_add",
            read_nbytes=2 * touched_nbytes(source) + 8 * rows,
            written_nbytes=touched_nbytes(source),
            numel=source.numel(),
            access=Access.STRIDED,
        )
        yield call.kernel(op)


def _nonzero(call: AtenCall) -> Iterator[Kernel]:
    """Counted, scanned, the number copied to the host, and written (aten/src/ATen/native/cuda/Nonzero.cu)."""
    tensor = call.inputs[0]
    if tensor.numel():
        for kind in ("count", "scan", "write"):
            yield call.elementwise(kind=kind, reads=[tensor], writes=call.outputs, access=Access.CONTIGUOUS)
        size = Copy(nbytes=8, source=Memory.DEVICE, destination=Memory.HOST)
        yield Kernel(name=call.name, op=size)


def _masked_select(call: AtenCall) -> Iterator[Kernel]:
    """The positions, and an indexing by them."""
    mask = call.inputs[1]
    positions = torch.empty(max(1, call.outputs[0].numel()), dtype=torch.int64, device="meta")
    for kind in ("count", "scan", "write"):
        yield call.elementwise(kind=kind, reads=[mask], writes=[positions], access=Access.CONTIGUOUS)
    yield Kernel(name=call.name, op=Copy(nbytes=8, source=Memory.DEVICE, destination=Memory.HOST))
    yield call.elementwise(reads=[call.outputs[0], positions], access=Access.STRIDED)


_SCATTERS = (
    "gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_",
    "masked_scatter", "masked_scatter_", "take", "put_", "put",
)  # fmt: skip

_ROW_SCATTERS = (
    "index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_", "index_reduce",
    "index_reduce_",
)  # fmt: skip

RULES: dict[str, Rule] = {
    "_coalesce": _coalesce,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "_embedding_bag_dense_backward": _embedding_bag_backward,
    "_embedding_bag_backward": _embedding_bag_backward,
    "index": _index,
    "_unsafe_index": _index,
    "index_select": _index,
    "masked_select": _masked_select,
    "nonzero": _nonzero,
    **dict.fromkeys(("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"), _index_put),
    **dict.fromkeys(_SCATTERS, _scatter),
    **dict.fromkeys(_ROW_SCATTERS, _row_scatter),
}
