"""Losses that are kernels of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conccl.core.ops import Reduction
from conccl.workloads.capture.kernels.call import AtenCall
from conccl.workloads.capture.tensors import dtype_of
from conccl.workloads.captured import Kernel


def _nll(call: AtenCall) -> Iterator[Kernel]:
    """Picks one element a row and reduces them in one CTA."""
    target = call.args[1]
    yield call.kernel(Reduction(outer=1, reduced=max(1, target.numel()), dtype=dtype_of(call.inputs[0])))


def _nll_backward(call: AtenCall) -> Iterator[Kernel]:
    gradient = call.outputs[0]
    yield call.elementwise(name="fill", reads=[], writes=[gradient])
    target = call.args[2]
    yield call.kernel(Reduction(outer=1, reduced=max(1, target.numel()), dtype=dtype_of(gradient)))


def _pointwise_then_mean(call: AtenCall) -> Iterator[Kernel]:
    """The loss of each element, and its mean or sum where one is asked for."""
    inputs = call.inputs[:2]
    yield call.elementwise(reads=inputs, writes=[inputs[0]], flops_per_element=4)
    if call.outputs[0].numel() == 1 and inputs[0].numel() > 1:
        yield call.kernel(
            Reduction(outer=1, reduced=inputs[0].numel(), dtype=dtype_of(inputs[0])), name="mean"
        )


def _pointwise(call: AtenCall) -> Iterator[Kernel]:
    yield call.elementwise(flops_per_element=4)


RULES: dict[str, Any] = {
    "nll_loss_forward": _nll,
    "nll_loss2d_forward": _nll,
    "nll_loss_backward": _nll_backward,
    "nll_loss2d_backward": _nll_backward,
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy"), _pointwise_then_mean),
    **dict.fromkeys(
        ("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "soft_margin_loss_backward",
         "binary_cross_entropy_backward"),
        _pointwise,
    ),
}  # fmt: skip
