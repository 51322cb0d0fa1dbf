"""Losses that are kernels of their own."""

from __future__ import annotations

from collections.abc import Iterator

from conccl.core.ops import Reduction
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.kernels.copies import filled
from conccl.workloads.capture.kernels.reductions import reduced
from conccl.workloads.capture.tensors import dtype_of
from conccl.workloads.captured import Kernel


def _nll(call: AtenCall) -> Iterator[Kernel]:
    """Picks one element a row and reduces them in one CTA."""
    target = call.argument("target")
    if target.numel():
        dtype = dtype_of(call.inputs[0])
        yield call.kernel(Reduction(outer=1, reduced=int(target.numel()), dtype=dtype, name="nll_loss"))


def _nll_backward(call: AtenCall) -> Iterator[Kernel]:
    """Into a cleared gradient."""
    gradient, target = call.outputs[0], call.argument("target")
    if target.numel():
        yield filled(gradient)
        dtype = dtype_of(gradient)
        yield call.kernel(Reduction(outer=1, reduced=int(target.numel()), dtype=dtype, name="nll_loss"))


def _pointwise_then_mean(call: AtenCall) -> Iterator[Kernel]:
    """The loss of each element, and its mean or sum where one is asked for."""
    inputs = call.inputs[:2]
    if not inputs[0].numel():
        return
    yield call.elementwise(reads=inputs, writes=inputs[:1])
    if call.argument("reduction"):
        op = Reduction(outer=1, reduced=inputs[0].numel(), dtype=dtype_of(inputs[0]), name="mean")
        yield reduced(call, op)


def _margin(call: AtenCall) -> Iterator[Kernel]:
    """A CTA a row, and the mean or sum of all rows where one is asked for."""
    tensor = call.inputs[0]
    if tensor.numel():
        rows = int(tensor.shape[0]) if tensor.dim() > 1 else 1
        dtype = dtype_of(tensor)
        yield call.kernel(Reduction(outer=rows, reduced=max(1, tensor.numel() // rows), dtype=dtype))
        if call.argument("reduction") and not call.name.endswith("_backward"):
            yield call.kernel(Reduction(outer=1, reduced=rows, dtype=dtype))


def _pointwise(call: AtenCall) -> Iterator[Kernel]:
    if call.outputs[0].numel():
        yield call.elementwise()


_LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss")

_GRADIENTS = (
    "mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "binary_cross_entropy_backward",
)  # fmt: skip

_MARGINS = (
    "multi_margin_loss", "multi_margin_loss_backward", "multilabel_margin_loss_forward",
    "multilabel_margin_loss_backward",
)  # fmt: skip

RULES: dict[str, Rule] = {
    "nll_loss_forward": _nll,
    "nll_loss2d_forward": _nll,
    "nll_loss_backward": _nll_backward,
    "nll_loss2d_backward": _nll_backward,
    **dict.fromkeys(_LOSSES, _pointwise_then_mean),
    **dict.fromkeys(_GRADIENTS, _pointwise),
    **dict.fromkeys(_MARGINS, _margin),
}
