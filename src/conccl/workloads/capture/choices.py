"""What PyTorch runs on CUDA where it would run something else elsewhere.

Each choice calls the CUDA op itself on meta tensors, so that autograd's formula for it stands behind the
gradient. `NotImplemented`: no CUDA op of its own; go the usual way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from conccl.workloads.capture import attention
from conccl.workloads.capture.interception import Handler
from conccl.workloads.capture.tensors import is_on_device, tensors_in

aten = torch.ops.aten


def dropout(input_: torch.Tensor, p: float, train: bool) -> Any:
    """One kernel that makes the mask and applies it (aten/src/ATen/native/Dropout.cpp)."""
    fused = train and 0 < p < 1 and input_.numel() > 0
    return torch.native_dropout(input_, p, train)[0] if fused else NotImplemented


def rms_norm(
    input_: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> Any:
    """One kernel, since PyTorch 2.9."""
    if weight is not None and weight.dtype != input_.dtype:
        return NotImplemented
    return _RmsNorm.apply(input_, list(normalized_shape), weight, eps)


class _RmsNorm(torch.autograd.Function):
    """PyTorch knows the fused op's gradient on CUDA alone, and takes it apart elsewhere."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> torch.Tensor:
        input_, shape, weight, eps = args
        with torch._C._AutoDispatchBelowAutograd():
            out, rstd = aten._fused_rms_norm(input_, shape, weight, eps)
        ctx.save_for_backward(input_, rstd, weight)
        ctx.shape = shape
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        input_, rstd, weight = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[2]]
        with torch._C._AutoDispatchBelowAutograd():
            by_input, by_weight = aten._fused_rms_norm_backward(
                grads[0].contiguous(), input_, ctx.shape, rstd, weight, wanted
            )
        return by_input, None, by_weight, None


CUDNN_BATCH = {True: 880801, False: 65535}
"""The largest batch that cuDNN's batch norm takes, by training (aten/src/ATen/native/Normalization.cpp)."""


def batch_norm(
    input_: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """The kernel of cuDNN where PyTorch takes it: not for bf16, and fp16 only beside fp32 weights."""
    if weight is None or bias is None or not (cudnn_enabled and torch.backends.cudnn.enabled):
        return NotImplemented
    has_both = running_mean is not None and running_var is not None
    cudnn = (
        input_.dim() >= 3
        and input_.dtype in (torch.float32, torch.float16)
        and weight.dtype == torch.float32
        and input_.shape[0] <= CUDNN_BATCH[training]
        and (has_both or (training and running_mean is None and running_var is None))
        and eps >= 1e-5
    )
    if not cudnn:
        return NotImplemented
    return aten.cudnn_batch_norm(input_, weight, bias, running_mean, running_var, training, momentum, eps)[0]


def softmax(input_: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """fp16 to fp32 within the kernel."""
    if input_.dtype == torch.float16 and dtype == torch.float32:
        return aten._softmax(input_, dim, True)
    return NotImplemented


def log_softmax(input_: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """fp16 to fp32 within the kernel."""
    if input_.dtype == torch.float16 and dtype == torch.float32:
        return aten._log_softmax(input_, dim, True)
    return NotImplemented


RNN_RELU, RNN_TANH, LSTM, GRU = range(4)
"""cudnnRNNMode_t."""


def _recurrent(mode: int) -> Handler:
    def run(
        data: torch.Tensor, hidden: Any, weights: Sequence[torch.Tensor], biased: bool, layers: int,
        rate: float, train: bool, both: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        return _cudnn_rnn(mode, data, hidden, weights, biased, layers, rate, train, both, batch_first, [])

    return run


def _packed(mode: int) -> Handler:
    def run(
        data: torch.Tensor, sizes: torch.Tensor, hidden: Any, weights: Sequence[torch.Tensor], biased: bool,
        layers: int, rate: float, train: bool, both: bool,
    ) -> Any:  # fmt: skip
        batches = [int(size) for size in sizes.tolist()]
        return _cudnn_rnn(mode, data, hidden, weights, biased, layers, rate, train, both, False, batches)

    return run


def _cudnn_rnn(
    mode: int, data: torch.Tensor, hidden: Any, weights: Sequence[torch.Tensor], biased: bool, layers: int,
    rate: float, train: bool, both: bool, batch_first: bool, sizes: list[int],
) -> Any:  # fmt: skip
    if not torch.backends.cudnn.enabled or data.numel() == 0:
        return NotImplemented
    hx, cx = hidden if isinstance(hidden, (list, tuple)) else (hidden, None)
    per_layer = 4 if biased else 2
    hidden_size = int(cx.shape[-1]) if cx is not None else int(hx.shape[-1])
    projected = int(hx.shape[-1]) if int(hx.shape[-1]) != hidden_size else 0
    if projected:
        per_layer += 1
    out, h, c, _, _ = aten._cudnn_rnn(
        data, list(weights), per_layer, None, hx, cx, mode, hidden_size, projected, layers, batch_first,
        float(rate), train, both, sizes, None,
    )  # fmt: skip
    return (out, h, c) if cx is not None else (out, h)


def lstm_cell(
    input_: torch.Tensor,
    hx: Sequence[torch.Tensor],
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> Any:
    """Two GEMMs and one fused kernel (aten/src/ATen/native/RNN.cpp)."""
    gates = torch.matmul(input_, w_ih.t()), torch.matmul(hx[0], w_hh.t())
    return aten._thnn_fused_lstm_cell(*gates, hx[1], b_ih, b_hh)[:2]


def gru_cell(
    input_: torch.Tensor,
    hx: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> Any:
    """Two GEMMs and one fused kernel."""
    gates = torch.matmul(input_, w_ih.t()), torch.matmul(hx, w_hh.t())
    return aten._thnn_fused_gru_cell(*gates, hx, b_ih, b_hh)[0]


def _on_device(handler: Callable[..., Any]) -> Handler:
    """Host tensors go the usual way."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        if not any(is_on_device(tensor) for tensor in tensors_in(args[:1])):
            return NotImplemented
        return handler(*args, **kwargs)

    return checked


_CHOICES: dict[str, Handler] = {
    **attention.HANDLERS,
    "dropout": dropout,
    "rms_norm": rms_norm,
    "batch_norm": batch_norm,
    "softmax.int": softmax,
    "log_softmax.int": log_softmax,
    "rnn_relu.input": _recurrent(RNN_RELU),
    "rnn_relu.data": _packed(RNN_RELU),
    "rnn_tanh.input": _recurrent(RNN_TANH),
    "rnn_tanh.data": _packed(RNN_TANH),
    "lstm.input": _recurrent(LSTM),
    "lstm.data": _packed(LSTM),
    "gru.input": _recurrent(GRU),
    "gru.data": _packed(GRU),
    "lstm_cell": lstm_cell,
    "gru_cell": gru_cell,
}

HANDLERS: dict[str, Handler] = {name: _on_device(handler) for name, handler in _CHOICES.items()}
"""Op -> what stands before it."""
