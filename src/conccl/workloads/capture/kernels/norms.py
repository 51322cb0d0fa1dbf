"""Norms and softmax, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import torch

from conccl.core.kinds import Pass, RowwiseKind
from conccl.core.ops import Elementwise, Reduction, Rowwise
from conccl.workloads.capture.kernels.call import AtenCall
from conccl.workloads.capture.tensors import dtype_of
from conccl.workloads.captured import Kernel


def _rowwise(kind: RowwiseKind, tensor: torch.Tensor, cols: int, direction: Pass) -> Rowwise:
    cols = max(1, cols)
    rows = max(1, tensor.numel() // cols)
    return Rowwise(kind=kind, rows=rows, cols=cols, direction=direction, dtype=dtype_of(tensor))


def _softmax(kind: RowwiseKind, direction: Pass) -> Callable[[AtenCall], Iterator[Kernel]]:
    def rule(call: AtenCall) -> Iterator[Kernel]:
        tensor = call.inputs[0]
        if tensor.numel():
            yield call.kernel(_rowwise(kind, tensor, int(tensor.shape[call.argument("dim")]), direction))

    return rule


def _layer_norm(kind: RowwiseKind) -> Callable[[AtenCall], Iterator[Kernel]]:
    def rule(call: AtenCall) -> Iterator[Kernel]:
        cols = prod(call.argument("normalized_shape"))
        yield call.kernel(_rowwise(kind, call.inputs[0], cols, Pass.FORWARD))

    return rule


def _layer_norm_backward(kind: RowwiseKind) -> Callable[[AtenCall], Iterator[Kernel]]:
    """One kernel for the input's gradient, one for those of weight and bias together."""

    def rule(call: AtenCall) -> Iterator[Kernel]:
        cols = prod(call.argument("normalized_shape"))
        grad = call.inputs[0]
        wants = call.argument("output_mask")
        if wants[0]:
            yield call.kernel(_rowwise(kind, grad, cols, Pass.BACKWARD))
        if any(wants[1:]):
            rows = max(1, 2 * grad.numel() // max(1, cols))
            yield call.kernel(
                Reduction(outer=1, reduced=rows, inner=cols, dtype=dtype_of(grad)), name="gamma_beta_backward"
            )

    return rule


def _group_norm(call: AtenCall) -> Iterator[Kernel]:
    """Moments of each group, the two factors of each channel, and their application."""
    tensor = call.inputs[0]
    groups = int(call.argument("N")) * int(call.argument("group"))
    cols = tensor.numel() // max(1, groups)
    yield call.kernel(
        Reduction(outer=groups, reduced=max(1, cols), dtype=dtype_of(tensor)), name="group_norm_moments"
    )
    channels = int(call.argument("N")) * int(call.argument("C"))
    factors = Elementwise(
        name="factors", read_nbytes=8 * channels, written_nbytes=8 * channels, numel=channels
    )
    yield call.kernel(factors, name="group_norm_factors")
    yield call.elementwise(
        name="group_norm_apply", reads=[tensor], writes=[call.outputs[0]], flops_per_element=2
    )


def _group_norm_backward(call: AtenCall) -> Iterator[Kernel]:
    grad, tensor = call.inputs[:2]
    channels = int(call.argument("N")) * int(call.argument("C"))
    per_channel = max(1, tensor.numel() // max(1, channels))
    moments = Reduction(outer=channels, reduced=2 * per_channel, dtype=dtype_of(tensor))
    yield call.kernel(moments, name="group_norm_internal_gradients")
    small = Elementwise(
        name="factors", read_nbytes=16 * channels, written_nbytes=16 * channels, numel=channels
    )
    yield call.kernel(small, name="group_norm_backward_factors")
    yield call.kernel(small, name="group_norm_backward_factors")
    if call.argument("output_mask")[0]:
        yield call.elementwise(
            name="group_norm_backward_apply", reads=[grad, tensor], writes=[grad], flops_per_element=3
        )
    if any(call.argument("output_mask")[1:]):
        yield call.kernel(small, name="group_norm_gamma_beta_backward")


def _batch_norm(call: AtenCall) -> Iterator[Kernel]:
    """cuDNN: one kernel. Native: statistics, running averages and the transform; only that in inference."""
    tensor = call.inputs[0]
    channels = int(tensor.shape[1])
    training = bool(call.argument("training"))
    if call.name == "cudnn_batch_norm":
        yield call.kernel(_rowwise(RowwiseKind.BATCH_NORM, tensor, tensor.numel() // channels, Pass.FORWARD))
        return
    if training:
        yield call.kernel(
            _channel_reduction(tensor, channels, tensors=1), name="batch_norm_collect_statistics"
        )
        nbytes = 16 * channels
        update = Elementwise(name="update_stats", read_nbytes=nbytes, written_nbytes=nbytes, numel=channels)
        yield call.kernel(update, name="batch_norm_update_statistics")
    yield call.elementwise(
        name="batch_norm_transform", reads=[tensor], writes=[call.outputs[0]], flops_per_element=2
    )


def _batch_norm_backward(call: AtenCall) -> Iterator[Kernel]:
    tensor, grad = call.inputs[:2]
    channels = int(tensor.shape[1])
    if call.name == "cudnn_batch_norm_backward":
        yield call.kernel(_rowwise(RowwiseKind.BATCH_NORM, tensor, tensor.numel() // channels, Pass.BACKWARD))
        return
    yield call.kernel(_channel_reduction(tensor, channels, tensors=2), name="batch_norm_backward_reduce")
    yield call.elementwise(
        name="batch_norm_backward_elementwise", reads=[tensor, grad], writes=[grad], flops_per_element=3
    )


def _channel_reduction(tensor: torch.Tensor, channels: int, *, tensors: int) -> Reduction:
    per_channel = max(1, tensors * tensor.numel() // max(1, channels))
    last = tensor.dim() > 2 and tensor.stride(1) == 1
    if last:
        return Reduction(outer=1, reduced=per_channel, inner=channels, dtype=dtype_of(tensor))
    return Reduction(outer=channels, reduced=per_channel, dtype=dtype_of(tensor))


def _dropout(call: AtenCall) -> Iterator[Kernel]:
    tensor = call.inputs[0]
    yield call.elementwise(name="fused_dropout", reads=[tensor], writes=call.outputs, flops_per_element=8)


RULES: dict[str, Any] = {
    "_softmax": _softmax(RowwiseKind.SOFTMAX, Pass.FORWARD),
    "_safe_softmax": _softmax(RowwiseKind.SOFTMAX, Pass.FORWARD),
    "_softmax_backward_data": _softmax(RowwiseKind.SOFTMAX, Pass.BACKWARD),
    "_log_softmax": _softmax(RowwiseKind.LOG_SOFTMAX, Pass.FORWARD),
    "_log_softmax_backward_data": _softmax(RowwiseKind.LOG_SOFTMAX, Pass.BACKWARD),
    "native_layer_norm": _layer_norm(RowwiseKind.LAYER_NORM),
    "native_layer_norm_backward": _layer_norm_backward(RowwiseKind.LAYER_NORM),
    "_fused_rms_norm": _layer_norm(RowwiseKind.RMS_NORM),
    "_fused_rms_norm_backward": _layer_norm_backward(RowwiseKind.RMS_NORM),
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    "native_batch_norm": _batch_norm,
    "cudnn_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "cudnn_batch_norm_backward": _batch_norm_backward,
    "native_dropout": _dropout,
}
