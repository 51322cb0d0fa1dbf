"""Convolutions as cuDNN runs them, with the layout changes around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from conccl.core.kinds import ConvolutionPass
from conccl.core.ops import Convolution, Reduction
from conccl.workloads.capture.kernels.call import AtenCall
from conccl.workloads.capture.tensors import dtype_of
from conccl.workloads.captured import Kernel


def _convolution(
    call: AtenCall,
    input_: torch.Tensor,
    weight: torch.Tensor,
    output: torch.Tensor,
    direction: ConvolutionPass,
) -> Convolution:
    """A transposed convolution is the gradient of one from its output to its input."""
    spatial = input_.dim() - 2
    transposed = bool(call.argument("transposed"))
    big, small = (output, input_) if transposed else (input_, output)
    return Convolution(
        batch=int(big.shape[0]),
        in_channels=int(big.shape[1]),
        out_channels=int(small.shape[1]),
        in_size=tuple(int(size) for size in big.shape[2:]),
        kernel_size=tuple(int(size) for size in weight.shape[2:]),
        stride=_each(call.argument("stride"), spatial),
        padding=_each(call.argument("padding"), spatial),
        dilation=_each(call.argument("dilation"), spatial),
        groups=int(call.argument("groups")),
        direction=_mirrored(direction) if transposed else direction,
        dtype=dtype_of(input_),
        channels_last=_is_channels_last(input_),
    )


def _mirrored(direction: ConvolutionPass) -> ConvolutionPass:
    return {
        ConvolutionPass.FORWARD: ConvolutionPass.INPUT_GRADIENT,
        ConvolutionPass.INPUT_GRADIENT: ConvolutionPass.FORWARD,
        ConvolutionPass.WEIGHT_GRADIENT: ConvolutionPass.WEIGHT_GRADIENT,
    }[direction]


def _each(given: list[int], spatial: int) -> tuple[int, ...]:
    return tuple(given) if len(given) == spatial else tuple(given) * spatial


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.dim() > 2 and tensor.stride(1) == 1 and tensor.shape[1] > 1


def _forward(call: AtenCall) -> Iterator[Kernel]:
    input_, weight = call.args[:2]
    output = call.outputs[0]
    if not output.numel():
        return
    yield call.kernel(_convolution(call, input_, weight, output, ConvolutionPass.FORWARD))
    if call.argument("bias") is not None:
        yield call.elementwise(name="add_bias", reads=[output], writes=[output])


def _backward(call: AtenCall) -> Iterator[Kernel]:
    grad, input_, weight = call.args[:3]
    by_input, by_weight, by_bias = call.argument("output_mask")
    if by_input:
        op = _convolution(call, input_, weight, grad, ConvolutionPass.INPUT_GRADIENT)
        yield call.kernel(op, name="convolution_input_gradient")
    if by_weight:
        op = _convolution(call, input_, weight, grad, ConvolutionPass.WEIGHT_GRADIENT)
        yield call.kernel(op, name="convolution_weight_gradient")
    if by_bias:
        channels = int(grad.shape[1])
        rows = max(1, grad.numel() // channels)
        last = _is_channels_last(grad)
        op_ = Reduction(
            outer=1 if last else channels, reduced=rows, inner=channels if last else 1, dtype=dtype_of(grad)
        )
        yield call.kernel(op_, name="convolution_bias_gradient")


RULES: dict[str, Any] = {
    "convolution": _forward,
    "_convolution": _forward,
    "convolution_overrideable": _forward,
    "convolution_backward": _backward,
}
