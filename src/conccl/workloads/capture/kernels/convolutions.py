"""Convolutions as cuDNN runs them, with the bias that PyTorch adds afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from conccl.core.kinds import Access, ConvolutionPass
from conccl.core.ops import Convolution, Elementwise
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.kernels.libraries import convolution_launches
from conccl.workloads.capture.kernels.reductions import reduced, reduction_of
from conccl.workloads.capture.tensors import dtype_of, is_channels_last, touched_nbytes
from conccl.workloads.captured import Kernel


def _convolution(
    call: AtenCall,
    input_: torch.Tensor,
    weight: torch.Tensor,
    output: torch.Tensor,
    direction: ConvolutionPass,
) -> Kernel:
    """A transposed convolution is the gradient of one from its output to its input."""
    spatial = input_.dim() - 2
    transposed = bool(call.argument("transposed"))
    big, small = (output, input_) if transposed else (input_, output)
    op = Convolution(
        batch=int(big.shape[0]),
        in_channels=int(big.shape[1]),
        out_channels=int(small.shape[1]),
        in_size=tuple(int(size) for size in big.shape[2:]),
        kernel_size=tuple(int(size) for size in weight.shape[2:]),
        stride=_each(call.argument("stride"), spatial),
        padding=_each(call.argument("padding"), spatial),
        dilation=_each(call.argument("dilation"), spatial),
        groups=int(call.argument("groups")),
        direction=_MIRRORED[direction] if transposed else direction,
        dtype=dtype_of(input_),
        channels_last=is_channels_last(input_) or is_channels_last(weight),
    )
    return call.kernel(op, launches=convolution_launches(op))


_MIRRORED = {
    ConvolutionPass.FORWARD: ConvolutionPass.INPUT_GRADIENT,
    ConvolutionPass.INPUT_GRADIENT: ConvolutionPass.FORWARD,
    ConvolutionPass.WEIGHT_GRADIENT: ConvolutionPass.WEIGHT_GRADIENT,
}


def _each(given: Sequence[int], spatial: int) -> tuple[int, ...]:
    return tuple(given) if len(given) == spatial else tuple(given) * spatial


def _forward(call: AtenCall) -> Iterator[Kernel]:
    input_, weight = call.args[:2]
    output = call.outputs[0]
    if not output.numel():
        return
    yield _convolution(call, input_, weight, output, ConvolutionPass.FORWARD)
    bias = call.argument("bias")
    if bias is not None:
        nbytes = touched_nbytes(output)
        op = Elementwise(
            name="add",
            read_nbytes=nbytes + touched_nbytes(bias),
            written_nbytes=nbytes,
            numel=output.numel(),
            access=Access.STRIDED,
        )
        yield Kernel(name="add_", op=op)


def _backward(call: AtenCall) -> Iterator[Kernel]:
    grad, input_, weight = call.args[:3]
    by_input, by_weight, by_bias = call.argument("output_mask")
    if by_input:
        yield _convolution(call, input_, weight, grad, ConvolutionPass.INPUT_GRADIENT)
    if by_weight:
        yield _convolution(call, input_, weight, grad, ConvolutionPass.WEIGHT_GRADIENT)
    if by_bias:
        dims = [dim for dim in range(grad.dim()) if dim != 1]
        kernel = reduced(call, reduction_of(grad, dims))
        yield Kernel(name="sum", op=kernel.op, launches=kernel.launches)


RULES: dict[str, Rule] = {
    "convolution": _forward,
    "_convolution": _forward,
    "convolution_overrideable": _forward,
    "convolution_backward": _backward,
    "convolution_backward_overrideable": _backward,
}
