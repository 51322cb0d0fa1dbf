"""Output shapes of CUDA ops for which PyTorch has no rule on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def _like(tensor: torch.Tensor, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype or tensor.dtype, device="meta")


def _cudnn_rnn(
    input: torch.Tensor,  # noqa: A002 (the schema's name)
    weight: Any,
    weight_stride0: int,
    weight_buf: Any,
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    mode: int,
    hidden_size: int,
    proj_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: list[int],
    dropout_state: Any,
) -> tuple[torch.Tensor, ...]:
    ways = 2 if bidirectional else 1
    width = ways * (proj_size or hidden_size)
    if batch_sizes:
        out = _like(input, int(input.shape[0]), width)
        batch = int(batch_sizes[0])
    else:
        out = _like(input, int(input.shape[0]), int(input.shape[1]), width)
        batch = int(input.shape[0] if batch_first else input.shape[1])
    hidden = _like(input, num_layers * ways, batch, proj_size or hidden_size)
    cell = _like(input, num_layers * ways, batch, hidden_size) if cx is not None else _like(input, 0)
    reserve = _like(input, out.numel() * 8 if train else 0, dtype=torch.uint8)
    flat = sum(tensor.numel() for tensor in weight)
    return out, hidden, cell, reserve, _like(input, flat)


def _cudnn_rnn_backward(
    input: torch.Tensor,  # noqa: A002
    weight: list[torch.Tensor],
    weight_stride0: int,
    weight_buf: torch.Tensor,
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    *rest: Any,
) -> tuple[Any, ...]:
    wanted = rest[-1]
    return (
        torch.empty_like(input),
        torch.empty_like(hx),
        torch.empty_like(cx) if cx is not None else _like(input, 0),
        [torch.empty_like(tensor) for tensor in weight] if wanted[3] else [],
    )


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    *_: Any,
    **__: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    steps, batch = int(log_probs.shape[0]), int(log_probs.shape[1])
    longest = int(targets.shape[-1]) if targets.dim() > 1 else max(1, targets.numel() // batch)
    return _like(log_probs, batch), _like(log_probs, batch, steps, 2 * longest + 1)


def _ctc_loss_backward(grad: torch.Tensor, log_probs: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return torch.empty_like(log_probs)


def _nonzero(tensor: torch.Tensor) -> torch.Tensor:
    return _like(tensor, tensor.numel(), tensor.dim(), dtype=torch.int64)


def _masked_select(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return _like(tensor, torch.broadcast_shapes(tensor.shape, mask.shape).numel())


def _unscale(grads: list[torch.Tensor], found_inf: torch.Tensor, inverse_scale: torch.Tensor) -> None:
    """Updates in place; shapes stay."""


def _unchanged(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor


OUTPUTS: dict[Any, Callable[..., Any]] = {
    aten._cudnn_rnn.default: _cudnn_rnn,
    aten._cudnn_rnn_backward.default: _cudnn_rnn_backward,
    aten._ctc_loss.default: _ctc_loss,
    aten._ctc_loss.Tensor: _ctc_loss,
    aten._ctc_loss_backward.default: _ctc_loss_backward,
    aten._ctc_loss_backward.Tensor: _ctc_loss_backward,
    aten.nonzero.default: _nonzero,
    aten.masked_select.default: _masked_select,
    aten._amp_foreach_non_finite_check_and_unscale_.default: _unscale,
    aten._amp_update_scale_.default: _unchanged,
}
"""Sizes that depend on data are upper bounds: every element counts."""
