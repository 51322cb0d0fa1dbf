"""Sorts, top-k and scans along rows: several kernels of the library, told here as one by a row's length."""

from __future__ import annotations

from conccl.core.hardware import Device
from conccl.core.kinds import OrderKind
from conccl.core.ops import Order
from conccl.costs.kernel import KernelCost
from conccl.costs.streaming import Stream, streaming_kernel

SHORT = 4096
"""Longest row that one CTA sorts by itself."""

TINY = 32
"""Longest row that a few threads sort by a network."""


def order_kernels(op: Order, device: Device, /) -> tuple[KernelCost, ...]:
    """What the library does for rows of this length."""
    if op.kind is OrderKind.SCAN:
        return (_scan(op, device),)
    if op.kind is OrderKind.SORT and op.cols <= SHORT and op.rows > 1:
        return (_short_sort(op, device),)
    long = op.cols > SHORT or op.rows == 1
    name = "sort" if op.kind is OrderKind.SORT else "topk"
    nbytes = float(op.nbytes)
    stream = Stream(
        read_nbytes=nbytes,
        written_nbytes=2 * nbytes if op.kind is OrderKind.SORT else nbytes / 2,
        ctas=max(op.rows, -(-op.rows * op.cols // 4096)) if long else op.rows,
        threads=128,
        elements=op.rows * op.cols * _digits(op),
        steps=1.0 if long else max(1.0, op.cols / 512),
    )
    return (streaming_kernel(f"{name}_{'long' if long else 'short'}", stream, device),)


def _digits(op: Order) -> float:
    """Passes over those of 32-bit keys; a part of the work is the same for all (measured, 2026-11-30)."""
    return 0.3 + 0.7 * op.dtype.nbytes / 4


def _short_sort(op: Order, device: Device) -> KernelCost:
    """Rows sorted in shared memory, 32 elements a thread, each digit a pass; the shortest by a network."""
    tiny = op.cols <= TINY
    rows_of_cta = 16 if tiny else 1
    threads = 256 if tiny else 32 * max(1, -(-op.cols // 1024))
    stream = Stream(
        read_nbytes=op.nbytes,
        written_nbytes=op.nbytes * 2.0,
        ctas=-(-op.rows // rows_of_cta),
        threads=threads,
        elements=op.rows * op.cols,
        registers=40 if tiny else 200,
        shared_memory_nbytes=6656 if tiny else 33 * max(op.cols, 256),
        steps=1.0 if tiny else _digits(op),
    )
    return streaming_kernel("sort_tiny" if tiny else "sort_short", stream, device)


def _scan(op: Order, device: Device) -> KernelCost:
    """Threads for a row and rows for a CTA of 512, balanced by torch; a step carries into the next."""
    if op.interleaved:
        return _scan_down(op, device)
    if op.rows == 1:
        stream = Stream(
            read_nbytes=op.nbytes / 2,
            written_nbytes=op.nbytes / 2,
            ctas=-(-op.cols // 2048),
            threads=128,
            elements=op.cols,
        )
        return streaming_kernel("scan_whole", stream, device)
    excess = 9 + (op.cols - 1).bit_length() - (op.rows - 1).bit_length()
    threads = 1 << min(max(excess // 2, 4), 9) if excess >= 0 else 512
    stream = Stream(
        read_nbytes=op.nbytes / 2,
        written_nbytes=op.nbytes / 2,
        ctas=-(-op.rows * threads // 512),
        threads=512,
        elements=op.rows * op.cols,
        steps=max(1.0, op.cols / threads / 2),
    )
    return streaming_kernel("scan", stream, device)


def _scan_down(op: Order, device: Device) -> KernelCost:
    """A thread goes down each column: 8 columns of 8192 numbers take 1.4 ms (measured, 2026-11-30)."""
    stream = Stream(
        read_nbytes=op.nbytes / 2,
        written_nbytes=op.nbytes / 2,
        ctas=-(-op.rows // 512),
        threads=min(512, op.rows),
        elements=op.rows * op.cols,
        steps=op.cols,
    )
    return streaming_kernel("scan_columns", stream, device)
