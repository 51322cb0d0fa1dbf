"""Rows of kernels that reduce or order: norms, softmax, losses, sums, sorts."""

from __future__ import annotations

from conccl.core.ops import (
    Elementwise,
    Op,
    Order,
    OrderKind,
    Pass,
    Reduction,
    Rowwise,
    RowwiseKind,
)
from conccl.costs.rows.row import Maker, Row


def _rowwise(row: Row) -> tuple[Op, ...]:
    kind = RowwiseKind(row.name)
    together = 0
    if kind in (RowwiseKind.BATCH_NORM, RowwiseKind.GROUP_NORM):
        together = row.count("h") * row.count("w")
    if kind is RowwiseKind.BATCH_NORM:
        rows, cols = row.count("c"), row.count("n") * row.count("h") * row.count("w")
    elif kind is RowwiseKind.GROUP_NORM:
        groups = row.count("groups")
        rows, cols = row.count("n") * groups, row.count("c") // groups * row.count("h") * row.count("w")
    else:
        rows, cols = row.count("rows"), row.count("cols")
    return (
        Rowwise(
            kind=kind,
            rows=rows,
            cols=cols,
            direction=row.direction,
            dtype=row.dtype,
            interleaved=row.flag("channels_last"),
            together=together,
        ),
    )


def _cross_entropy(row: Row) -> tuple[Op, ...]:
    rows, cols = row.count("rows"), row.count("cols")
    softmax = Rowwise(
        kind=RowwiseKind.LOG_SOFTMAX, rows=rows, cols=cols, direction=row.direction, dtype=row.dtype
    )
    loss = Reduction(outer=1, reduced=rows, dtype=row.dtype, name="nll_loss")
    if row.direction is Pass.FORWARD:
        return (softmax, loss)
    numel = rows * cols
    fill = Elementwise(name="fill", read_nbytes=0, written_nbytes=numel * row.dtype.nbytes, numel=numel)
    return (fill, loss, softmax)


def _reduction(row: Row) -> tuple[Op, ...]:
    if "numel" in row:
        outer, reduced, inner = 1, row.count("numel"), 1
    else:
        outer, reduced, inner = row.count("outer", 1), row.count("reduced"), row.count("inner", 1)
    return (Reduction(outer=outer, reduced=reduced, inner=inner, dtype=row.dtype, name=row.name),)


_ORDERS = {
    "topk": OrderKind.TOPK,
    "sort": OrderKind.SORT,
    "argsort": OrderKind.SORT,
    "cumsum": OrderKind.SCAN,
}


def _order(row: Row) -> tuple[Op, ...]:
    return (Order(kind=_ORDERS[row.name], rows=row.count("rows"), cols=row.count("cols"), dtype=row.dtype),)


REDUCING: dict[str, Maker] = {
    **dict.fromkeys(RowwiseKind, _rowwise),
    "cross_entropy": _cross_entropy,
    **dict.fromkeys(("sum", "mean", "amax", "max", "argmax", "var", "norm"), _reduction),
    **dict.fromkeys(_ORDERS, _order),
}
