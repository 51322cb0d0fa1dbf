"""Norms and softmax as PyTorch launches them: a CTA (or warp) for each row, more kernels backward.

Forward norms go over a row twice, softmax over long rows three times; a second pass hits L2 unless the rows
under way at once are more than it holds.
"""

from __future__ import annotations

import functools

from conccl.core.hardware import Device
from conccl.core.kinds import DType, Pass, RowwiseKind
from conccl.core.ops import Elementwise, Rowwise
from conccl.costs.elementwise import elementwise_kernels
from conccl.costs.kernel import KernelCost
from conccl.costs.streaming import Stream, streaming_kernel

WARP_COLS = 1024
"""Longest row that a warp's registers hold: softmax_warp_forward and _backward."""

SOFTMAX = (RowwiseKind.SOFTMAX, RowwiseKind.LOG_SOFTMAX)


def rowwise_kernels(op: Rowwise, device: Device, /) -> tuple[KernelCost, ...]:
    """The op's kernels in order."""
    forward = op.direction is Pass.FORWARD
    if op.kind in SOFTMAX:
        return _softmax(op, device) if forward else _softmax_backward(op, device)
    if op.kind is RowwiseKind.BATCH_NORM:
        return _batch_norm(op, device) if forward else _batch_norm_backward(op, device)
    if op.kind is RowwiseKind.GROUP_NORM:
        return _group_norm(op, device) if forward else _group_norm_backward(op, device)
    return _norm(op, device) if forward else _norm_backward(op, device)


def _rows(
    kind: str,
    op: Rowwise,
    device: Device,
    *,
    reads: float,
    writes: float,
    threads: int,
    each: int,
    rows_of_cta: int = 1,
    again: float = 0.0,
    registers: int = 32,
    effort: float = 1.0,
) -> KernelCost:
    """A kernel with a CTA for so many rows, whose threads take ``each`` elements a step.

    ``reads`` and ``writes`` count tensors, ``again`` the further passes over what was read, ``effort`` what
    its steps and instructions are to those of its kind.
    """
    nbytes = float(op.rows * op.cols * op.dtype.nbytes)
    ctas = -(-op.rows // rows_of_cta)
    resident = min(ctas, device.sm_count * (device.threads_per_sm // threads))
    missed = _missed(resident * rows_of_cta * op.cols * op.dtype.nbytes * reads, device)
    stream = Stream(
        read_nbytes=nbytes * reads * (1 + again * missed),
        written_nbytes=nbytes * writes,
        ctas=ctas,
        threads=threads,
        elements=op.rows * op.cols * effort,
        steps=max(1.0, op.cols * rows_of_cta / (threads * each)) * effort,
        registers=registers,
    )
    return streaming_kernel(kind, stream, device)


def _missed(nbytes: float, device: Device) -> float:
    """The share of bytes that L2 no longer holds when they are read again."""
    return min(max(nbytes / device.l2_nbytes - 0.5, 0.0), 1.0)


def _norm(op: Rowwise, device: Device) -> tuple[KernelCost, ...]:
    kind = "rms_norm" if op.kind is RowwiseKind.RMS_NORM else "layer_norm"
    if op.cols % 4:
        return (
            _rows("moments", op, device, reads=1, writes=0, threads=512, each=1),
            _rows("norm_apply", op, device, reads=1, writes=1, threads=256, each=1),
        )
    return (_rows(kind, op, device, reads=1, writes=1, threads=128, each=4, again=1.0),)


def _norm_backward(op: Rowwise, device: Device) -> tuple[KernelCost, ...]:
    """The input's gradient row by row, then those of weight and bias down the columns."""
    rows = _rows("norm_backward", op, device, reads=2, writes=1, threads=128, each=4, again=1.0)
    threads = min(1024, max(32, 32 * (op.rows // 8)))
    nbytes = 2.0 * op.rows * op.cols * op.dtype.nbytes
    stream = Stream(
        read_nbytes=nbytes,
        written_nbytes=2.0 * op.cols * op.dtype.nbytes,
        ctas=-(-op.cols // 32),
        threads=threads,
        elements=op.rows * op.cols,
        steps=op.rows * 32 / threads / 8,
    )
    kind = "rms_weight_backward" if op.kind is RowwiseKind.RMS_NORM else "layer_weight_backward"
    return (rows, streaming_kernel(kind, stream, device))


def _softmax(op: Rowwise, device: Device) -> tuple[KernelCost, ...]:
    """By a warp, from registers, from shared memory, or in three passes, as rows grow."""
    row_nbytes = op.cols * op.dtype.nbytes
    effort = LOG_EFFORT if op.kind is RowwiseKind.LOG_SOFTMAX else 1.0
    whole = functools.partial(_rows, reads=1, writes=1, effort=effort)
    if op.cols <= 2 * WARP_COLS:
        rows, registers = _warp_rows(op)
        kernel = whole("softmax_warp", op, device, threads=128, each=1, rows_of_cta=rows, registers=registers)
    elif op.cols <= REGISTER_COLS:
        kernel = whole("softmax_registers", op, device, threads=1024, each=1)
    elif row_nbytes <= SHARED_NBYTES:
        kernel = whole("softmax_shared", op, device, threads=1024, each=8)
    else:
        kernel = whole("softmax_long", op, device, threads=1024, each=16 // op.dtype.nbytes, again=2.0)
    return (kernel,)


LOG_EFFORT = 0.8
"""Log-softmax needs no exponential in its last pass (measured, 2026-11-30: 0.75 to 0.85 of softmax)."""

PRODUCT_EFFORT = 0.6
"""Softmax's gradient, its product made before, needs no exponential as log-softmax's does (measured,
2026-11-30)."""

REGISTER_COLS = 9 * 1024
"""Longest row of the kernel that keeps it in the registers of 1024 threads."""

SHARED_NBYTES = 48 << 10
"""Longest row of the kernels that keep it in shared memory."""


def _warp_rows(op: Rowwise) -> tuple[int, int]:
    """Rows of a CTA of four warps, and registers of a thread that holds its part of one."""
    if op.cols <= 128:
        return 8, 32
    return 4, 40 if op.cols <= 512 else 80


def _softmax_backward(op: Rowwise, device: Device) -> tuple[KernelCost, ...]:
    """Softmax multiplies output and gradient first; log-softmax needs no such pass."""
    numel, nbytes = op.rows * op.cols, op.rows * op.cols * op.dtype.nbytes
    kernels: tuple[KernelCost, ...] = ()
    reads = 2.0
    if op.kind is RowwiseKind.SOFTMAX:
        reads = 1.0 + _missed(nbytes, device)  # the product may still be in L2
        product = Elementwise(name="mul", read_nbytes=2 * nbytes, written_nbytes=nbytes, numel=numel)
        kernels = elementwise_kernels(product, device)
    if op.cols <= WARP_COLS:
        rows, registers = _warp_rows(op)
        kernel = _rows(
            "softmax_warp_backward",
            op,
            device,
            reads=reads,
            writes=1,
            threads=128,
            each=1,
            rows_of_cta=rows,
            registers=registers,
            effort=PRODUCT_EFFORT if op.kind is RowwiseKind.SOFTMAX else 1.0,
        )
        return (*kernels, kernel)
    short = op.cols * op.dtype.nbytes <= SHARED_NBYTES
    kind = "softmax_backward" if short else "softmax_backward_long"
    threads = 256 if op.cols <= 4096 else 512
    again = 0.0 if short else 1.0
    return (
        *kernels,
        _rows(kind, op, device, reads=reads, writes=1, threads=threads, each=8, again=again),
    )


def _batch_norm(op: Rowwise, device: Device) -> tuple[KernelCost, ...]:
    """Statistics of every channel, then their use; in fp32 one kernel of cuDNN's. Rows are channels."""
    layout = "last" if op.interleaved else "first"
    if op.dtype is DType.FP32:
        if not op.interleaved and op.cols <= ONCE_COLS:
            return (_channels("batch_once_first", op, device, reads=1, writes=1, registers=128),)
        return (_channels(f"batch_whole_{layout}", op, device, reads=1, writes=1, again=1.0),)
    statistics = _channels(f"batch_statistics_{layout}", op, device, reads=1, writes=0)
    if op.interleaved or not op.together:
        return (statistics, _channels(f"batch_apply_{layout}", op, device, reads=1, writes=1))
    return (statistics, _applied_to_images(op, device))


def _batch_norm_backward(op: Rowwise, device: Device) -> tuple[KernelCost, ...]:
    layout = "last" if op.interleaved else "first"
    if op.dtype is DType.FP32 and not op.interleaved and op.cols <= ONCE_COLS // 2:
        return (_channels("batch_once_backward_first", op, device, reads=2, writes=1, registers=128),)
    if op.dtype is DType.FP32 or not op.interleaved:
        kind = "batch_whole_backward" if op.dtype is DType.FP32 else "batch_backward"
        return (_channels(f"{kind}_{layout}", op, device, reads=2, writes=1, again=1.0),)
    return (
        _channels("batch_reduce_last", op, device, reads=2, writes=0),
        _channels("batch_gradient_last", op, device, reads=2, writes=1),
    )


ONCE_COLS = 28 << 10
"""Longest channel that cuDNN keeps in the registers of 512 threads and reads once (names of what ran on the
H200, 2026-11-30: 12,544 does, 32,768 does not); backward keeps two tensors."""


def _applied_to_images(op: Rowwise, device: Device) -> KernelCost:
    """A CTA for each channel of each image, of as many threads as the image fills."""
    numel = op.rows * op.cols
    nbytes = float(numel * op.dtype.nbytes)
    threads = 64 if op.together <= 256 else 256 if op.together <= 1024 else 512
    stream = Stream(
        read_nbytes=nbytes,
        written_nbytes=nbytes,
        ctas=max(1, numel // op.together),
        threads=threads,
        elements=numel,
        steps=max(1.0, op.together / threads),
    )
    return streaming_kernel("batch_apply_first", stream, device)


def _channels(
    kind: str,
    op: Rowwise,
    device: Device,
    *,
    reads: int,
    writes: int,
    again: float = 0.0,
    registers: int = 32,
) -> KernelCost:
    """Kernels over images: a CTA for each channel where they reduce contiguous ones, else a grid over all."""
    numel = op.rows * op.cols
    nbytes = float(numel * op.dtype.nbytes)
    spread = op.interleaved or kind == "batch_apply_first"
    ctas = max(op.rows, min(-(-numel // 8192), 2 * device.sm_count)) if spread else op.rows
    missed = _missed(nbytes * reads, device)
    stream = Stream(
        read_nbytes=nbytes * reads * (1 + again * missed),
        written_nbytes=nbytes * writes,
        ctas=ctas,
        threads=512,
        elements=numel,
        steps=max(1.0, numel / ctas / 512),
        registers=registers,
    )
    return streaming_kernel(kind, stream, device)


GROUPS = 32
"""Groups of one image: the usual number, which the op does not say."""


def _group_norm(op: Rowwise, device: Device) -> tuple[KernelCost, ...]:
    """Moments of each group, scale and shift of each channel, then their use."""
    threads = 32 if op.cols < 512 else 512
    return (
        _rows("group_moments", op, device, reads=1, writes=0, threads=threads, each=1),
        _few("group_parameters", op, device, steps=1.0),
        _applied(op, device, reads=1),
    )


def _group_norm_backward(op: Rowwise, device: Device) -> tuple[KernelCost, ...]:
    """Sums of each channel, then the input's gradient, then scale and shift summed over the images."""
    images = max(1, op.rows // GROUPS)
    return (
        _group_sums(op, device),
        _few("group_parameters", op, device, steps=1.0),
        _few("group_parameters", op, device, steps=1.0),
        _applied(op, device, reads=2),
        _few("group_gamma", op, device, steps=images * (2.0 if op.dtype.nbytes < 4 else 1.0)),
    )


def _group_sums(op: Rowwise, device: Device) -> KernelCost:
    """A CTA for each channel of each image: a warp where it is small, 512 threads otherwise."""
    numel = op.rows * op.cols
    together = op.together or op.cols
    threads = 32 if together < 512 else 512
    stream = Stream(
        read_nbytes=2.0 * numel * op.dtype.nbytes,
        written_nbytes=0.0,
        ctas=max(1, numel // together),
        threads=threads,
        elements=numel,
        steps=max(1.0, together / threads),
    )
    return streaming_kernel("group_reduce", stream, device)


def _few(kind: str, op: Rowwise, device: Device, *, steps: float) -> KernelCost:
    """A small kernel over numbers of groups."""
    nbytes = 8.0 * op.rows
    stream = Stream(read_nbytes=nbytes, written_nbytes=nbytes, ctas=1, threads=256, steps=steps)
    return streaming_kernel(kind, stream, device)


def _applied(op: Rowwise, device: Device, *, reads: int) -> KernelCost:
    """Each element scaled and shifted by its group's and channel's numbers: a strided elementwise kernel."""
    numel, nbytes = op.rows * op.cols, op.rows * op.cols * op.dtype.nbytes
    name = "group_apply" if reads == 1 else "group_gradient"
    stream = Stream(
        read_nbytes=reads * nbytes,
        written_nbytes=nbytes,
        ctas=-(-numel // 512),
        threads=128,
        elements=numel,
    )
    return streaming_kernel(name, stream, device)
