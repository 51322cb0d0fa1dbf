"""Sorts, top-k and scans along rows: several kernels of the library, told here as one by a row's length."""

from __future__ import annotations

from conccl.core.hardware import Device
from conccl.core.kinds import OrderKind
from conccl.core.ops import Order
from conccl.costs.kernel import KernelCost
from conccl.costs.streaming import Stream, streaming_kernel

SHORT = 4096
"""Longest row that one CTA sorts by itself."""


def order_kernels(op: Order, device: Device, /) -> tuple[KernelCost, ...]:
    """What the library does for rows of this length."""
    kind = {OrderKind.SORT: "sort", OrderKind.TOPK: "topk", OrderKind.SCAN: "scan"}[op.kind]
    long = op.cols > SHORT or op.rows == 1
    nbytes = float(op.nbytes)
    stream = Stream(
        read_nbytes=nbytes if op.kind is OrderKind.SORT else nbytes / 2,
        written_nbytes=nbytes * 2 if op.kind is OrderKind.SORT else nbytes / 2,
        ctas=max(op.rows, -(-op.rows * op.cols // 4096)) if long and kind != "scan" else op.rows,
        threads=128,
        elements=op.rows * op.cols,
        steps=1.0 if long and kind != "scan" else max(1.0, op.cols / 512),
    )
    return (streaming_kernel(f"{kind}_{'long' if long else 'short'}", stream, device),)
