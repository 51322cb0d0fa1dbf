"""Attention as the separate kernels that it was before fused ones: scores, softmax, dropout, values."""

from __future__ import annotations

from collections.abc import Iterator

from conccl.core.kinds import DType, Pass, RowwiseKind
from conccl.core.ops import Attention, Elementwise, Gemm, Op, Rowwise
from conccl.workloads.layers import LayerOp

MASK_NBYTES = DType.BOOL.nbytes
"""Of a dropout mask, an element."""


def unfused(item: LayerOp, /) -> tuple[LayerOp, ...]:
    """The kernels of an attention op; any other op as it is."""
    if not isinstance(item.op, Attention):
        return (item,)
    return tuple(
        LayerOp(name=f"{item.name}.{name}", op=op, direction=item.direction)
        for name, op in (_forward(item.op) if item.op.direction is Pass.FORWARD else _backward(item.op))
    )


def _forward(attention: Attention) -> Iterator[tuple[str, Op]]:
    yield "scores", _scores(attention)
    yield "softmax", _softmax(attention)
    yield "dropout", _dropout(attention)
    yield "values", _values(attention)


def _backward(attention: Attention) -> Iterator[tuple[str, Op]]:
    yield "values.dgrad", _scores(attention)
    yield "values.wgrad", _values(attention)
    yield "dropout.grad", _dropout(attention)
    yield "softmax.grad", _softmax(attention)
    yield "queries.grad", _values(attention)
    yield "keys.grad", _values(attention)


def _scores(attention: Attention) -> Gemm:
    """[queries, keys] of every head; nothing is left out where a mask will be."""
    return Gemm(
        m=attention.queries,
        n=attention.keys,
        k=attention.head_dim,
        batch=attention.batch * attention.heads,
        dtype=attention.dtype,
    )


def _values(attention: Attention) -> Gemm:
    return Gemm(
        m=attention.queries,
        n=attention.head_dim,
        k=attention.keys,
        batch=attention.batch * attention.heads,
        dtype=attention.dtype,
    )


def _softmax(attention: Attention) -> Rowwise:
    rows = attention.batch * attention.heads * attention.queries
    return Rowwise(
        kind=RowwiseKind.SOFTMAX,
        rows=rows,
        cols=attention.keys,
        direction=attention.direction,
        dtype=attention.dtype,
    )


def _dropout(attention: Attention) -> Elementwise:
    numel = attention.batch * attention.heads * attention.queries * attention.keys
    nbytes = numel * attention.dtype.nbytes
    mask = numel * MASK_NBYTES
    forward = attention.direction is Pass.FORWARD
    return Elementwise(
        name="dropout",
        read_nbytes=nbytes if forward else nbytes + mask,
        written_nbytes=nbytes + mask if forward else nbytes,
        numel=numel,
    )
