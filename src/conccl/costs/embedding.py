"""Rows looked up in a table, and the table's gradient."""

from __future__ import annotations

import math

from conccl.core.hardware import Device
from conccl.core.kinds import Pass
from conccl.core.ops import Elementwise, Gather
from conccl.costs.elementwise import elementwise_kernels
from conccl.costs.kernel import KernelCost
from conccl.costs.streaming import Stream, streaming_kernel

SORTED_FROM = 3072
"""Lookups from which on the gradient is sorted first (torch's embedding_dense_backward)."""

SORTING_KERNELS = 18
"""Small kernels that sort and count them."""


def gather_kernels(op: Gather, device: Device, /) -> tuple[KernelCost, ...]:
    """Forward one kernel; backward the table is cleared, then rows are added into it."""
    return _looked_up(op, device) if op.direction is Pass.FORWARD else _added(op, device)


def _looked_up(op: Gather, device: Device) -> tuple[KernelCost, ...]:
    row_nbytes = op.cols * op.dtype.nbytes
    small = op.rows <= 16
    each = 1024 if small else 4096
    ctas = -(-op.rows * op.cols // each) if small else op.rows * -(-row_nbytes // each)
    distinct = op.table_rows * -math.expm1(-op.rows / op.table_rows)  # of rows drawn at random
    read = distinct if op.table_rows * row_nbytes < device.l2_nbytes else op.rows
    stream = Stream(
        read_nbytes=read * row_nbytes + 8 * op.rows,
        written_nbytes=op.rows * row_nbytes,
        ctas=max(1, ctas),
        threads=128,
        elements=op.rows * op.cols,
        steps=float(op.rows) if small else 1.0,
    )
    kind = "gather_few" if small else "gather" if row_nbytes % 16 == 0 else "gather_odd"
    return (streaming_kernel(kind, stream, device),)


def _added(op: Gather, device: Device) -> tuple[KernelCost, ...]:
    table_nbytes = op.table_rows * op.cols * op.dtype.nbytes
    fill = Elementwise(name="fill", read_nbytes=0, written_nbytes=table_nbytes, numel=op.table_rows * op.cols)
    cleared = elementwise_kernels(fill, device)
    nbytes = op.rows * op.cols * op.dtype.nbytes
    if op.rows <= SORTED_FROM:
        stream = Stream(
            read_nbytes=nbytes,
            written_nbytes=nbytes,
            ctas=-(-op.cols // 32),
            threads=1024,
            elements=op.rows * op.cols,
            steps=op.rows / 32,
        )
        return (*cleared, streaming_kernel("embedding_backward", stream, device))
    sort = Stream(
        read_nbytes=op.rows * 64, written_nbytes=op.rows * 64, ctas=-(-op.rows // 4096), threads=384
    )
    sums = Stream(
        read_nbytes=2 * nbytes,
        written_nbytes=3 * nbytes,
        ctas=op.rows,
        threads=min(1024, 32 * -(-op.cols // 32)),
        elements=op.rows * op.cols,
    )
    return (
        *cleared,
        streaming_kernel("embedding_sort", sort, device),
        streaming_kernel("embedding_sums", sums, device),
    )
