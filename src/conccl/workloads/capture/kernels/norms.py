"""Norms, softmax and dropout, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch

from conccl.core.kinds import Access, Pass, RowwiseKind
from conccl.core.ops import Rowwise
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.kernels.copies import copied
from conccl.workloads.capture.tensors import dtype_of
from conccl.workloads.captured import Kernel

SOFTMAX = (RowwiseKind.SOFTMAX, RowwiseKind.LOG_SOFTMAX)


def rowwise(
    kind: RowwiseKind,
    tensor: torch.Tensor,
    cols: int,
    direction: Pass,
    /,
    *,
    interleaved: bool = False,
    together: int = 0,
) -> Rowwise:
    """The op over rows of so many elements."""
    cols = max(1, cols)
    rows = max(1, tensor.numel() // cols)
    dtype = dtype_of(tensor)
    return Rowwise(
        kind=kind,
        rows=rows,
        cols=cols,
        direction=direction,
        dtype=dtype,
        interleaved=interleaved,
        together=together,
    )


def _softmax(kind: RowwiseKind, direction: Pass) -> Rule:
    """Backward of softmax multiplies output and gradient first."""
    launches = 2 if kind is RowwiseKind.SOFTMAX and direction is Pass.BACKWARD else 1

    def rule(call: AtenCall) -> Iterator[Kernel]:
        tensor = call.inputs[0]
        if tensor.numel():
            cols = int(tensor.shape[call.argument("dim")]) if tensor.dim() else 1
            yield call.kernel(rowwise(kind, tensor, cols, direction), launches=launches)

    return rule


def _layer_norm(kind: RowwiseKind) -> Rule:
    """Rows whose length is no multiple of four take a kernel for the moments and one for the rest."""

    def rule(call: AtenCall) -> Iterator[Kernel]:
        tensor, cols = call.inputs[0], prod(call.argument("normalized_shape"))
        if tensor.numel():
            yield call.kernel(rowwise(kind, tensor, cols, Pass.FORWARD), launches=2 if cols % 4 else 1)

    return rule


def _layer_norm_backward(kind: RowwiseKind) -> Rule:
    """One kernel for the input's gradient, one for those of weight and bias together."""

    def rule(call: AtenCall) -> Iterator[Kernel]:
        tensor, cols = call.inputs[0], prod(call.argument("normalized_shape"))
        if tensor.numel():
            wanted = list(call.argument("output_mask"))
            launches = bool(wanted[0]) + any(wanted[1:])
            yield call.kernel(rowwise(kind, tensor, cols, Pass.BACKWARD), launches=launches)

    return rule


def _group_norm(call: AtenCall) -> Iterator[Kernel]:
    """Moments of each group, the two factors of each channel, and their application."""
    yield from _of_groups(call, Pass.FORWARD, launches=3)


def _group_norm_backward(call: AtenCall) -> Iterator[Kernel]:
    """Sums of each channel, factors, the input's gradient, and those of weight and bias."""
    yield from _of_groups(call, Pass.BACKWARD, launches=5)


def _of_groups(call: AtenCall, direction: Pass, *, launches: int) -> Iterator[Kernel]:
    tensor = call.inputs[0]
    groups = int(call.argument("N")) * int(call.argument("group"))
    if tensor.numel():
        cols = tensor.numel() // max(1, groups)
        together = tensor.shape[2:].numel()
        op = rowwise(RowwiseKind.GROUP_NORM, tensor, cols, direction, together=together)
        yield call.kernel(op, launches=launches)


def _batch_norm(call: AtenCall) -> Iterator[Kernel]:
    """cuDNN: one kernel. Native: statistics, running averages and the transform; fewer in inference.

    CTAs that share a channel of channels-last images count each other: their counters are cleared first.
    """
    tensor = call.inputs[0]
    if not tensor.numel():
        return
    if call.name == "cudnn_batch_norm":
        yield call.kernel(_over_images(tensor, Pass.FORWARD))
    elif call.argument("training" if call.has_argument("training") else "train"):
        op = _over_images(tensor, Pass.FORWARD)
        yield call.kernel(op, launches=4 if op.interleaved else 3)
    else:  # the inverse deviation of each channel, in fp32, and its application
        variance = call.inputs[-1]
        if variance.dtype != torch.float32:
            yield copied(variance, torch.empty(variance.shape, device="meta"))
        yield call.elementwise(kind="rsqrt", reads=[variance], writes=[variance])
        # Each channel has numbers of its own, which costs instructions (H200, 2026-11-30).
        last = _over_images(tensor, Pass.FORWARD).interleaved
        yield call.elementwise(
            reads=[tensor],
            writes=call.outputs[:1],
            access=Access.CONTIGUOUS if last and tensor.numel() > SMALL_IMAGES else Access.STRIDED,
            instructions=45 if last else 95,
        )


def _batch_norm_backward(call: AtenCall) -> Iterator[Kernel]:
    """cuDNN, or native over channels first: one kernel; over channels last counters, sums and gradients."""
    tensor = call.inputs[0]
    if tensor.numel():
        native = call.name != "cudnn_batch_norm_backward"
        op = _over_images(tensor, Pass.BACKWARD)
        yield call.kernel(op, launches=3 if native and op.interleaved else 1)


SMALL_IMAGES = 1 << 21
"""Elements up to which each thread of the transform has too little to do to hide what it waits for."""


def _over_images(tensor: torch.Tensor, direction: Pass) -> Rowwise:
    """Rows are channels; those of channels-last images lie interleaved."""
    channels = max(1, int(tensor.shape[1]))
    last = tensor.dim() == 2 or (tensor.stride(1) == 1 and channels > 1)
    cols = tensor.numel() // channels
    together = tensor.shape[2:].numel()
    return rowwise(RowwiseKind.BATCH_NORM, tensor, cols, direction, interleaved=last, together=together)


def _dropout(call: AtenCall) -> Iterator[Kernel]:
    if call.inputs[0].numel():
        yield call.elementwise(kind="dropout", reads=call.inputs[:1])


def _dropout_backward(call: AtenCall) -> Iterator[Kernel]:
    if call.inputs[0].numel():
        yield call.elementwise(kind="dropout_backward")


_BATCH_NORMS = (
    "native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update", "_batch_norm_no_update",
)  # fmt: skip

_BATCH_NORMS_BACKWARD = ("native_batch_norm_backward", "cudnn_batch_norm_backward", "batch_norm_backward")

RULES: dict[str, Rule] = {
    "_softmax": _softmax(RowwiseKind.SOFTMAX, Pass.FORWARD),
    "_softmax_backward_data": _softmax(RowwiseKind.SOFTMAX, Pass.BACKWARD),
    "_log_softmax": _softmax(RowwiseKind.LOG_SOFTMAX, Pass.FORWARD),
    "_log_softmax_backward_data": _softmax(RowwiseKind.LOG_SOFTMAX, Pass.BACKWARD),
    "native_layer_norm": _layer_norm(RowwiseKind.LAYER_NORM),
    "native_layer_norm_backward": _layer_norm_backward(RowwiseKind.LAYER_NORM),
    "_fused_rms_norm": _layer_norm(RowwiseKind.RMS_NORM),
    "_fused_rms_norm_backward": _layer_norm_backward(RowwiseKind.RMS_NORM),
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    **dict.fromkeys(_BATCH_NORMS, _batch_norm),
    **dict.fromkeys(_BATCH_NORMS_BACKWARD, _batch_norm_backward),
    "native_dropout": _dropout,
    "native_dropout_backward": _dropout_backward,
}
