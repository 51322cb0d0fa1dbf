"""What PyTorch runs on CUDA where it would run something else elsewhere, by the name of the function.

Each choice calls the CUDA op itself on meta tensors, so that autograd's formula for it stands behind the
gradient. NotImplemented: no CUDA op of its own; go the usual way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from conccl.workloads.capture.program import Program

aten = torch.ops.aten

LOW = (torch.bfloat16, torch.float16)


def attention(
    program: Program,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """The fused backend that CUDA's priority order gives on Hopper: cuDNN, flash, memory-efficient, math.

    Seen on an H200 with torch 2.11: bf16 and fp16 attention without a mask runs cuDNN's kernels.
    """
    del program
    if query.dim() != 4 or query.numel() == 0:
        return NotImplemented
    groups = query.shape[1] // key.shape[1] if enable_gqa else 1
    fits = query.shape[-1] <= 128 and query.shape[-1] % 8 == 0 and query.shape[-1] == value.shape[-1]
    train = any(tensor.requires_grad for tensor in (query, key, value)) and torch.is_grad_enabled()
    if query.dtype in LOW and fits and dropout_p == 0.0:
        return aten._scaled_dot_product_cudnn_attention(
            query, _repeated(key, groups), _repeated(value, groups), attn_mask, train, dropout_p, is_causal, scale=scale
        )[0]
    if query.dtype in LOW and attn_mask is None and query.shape[-1] <= 256:
        return aten._scaled_dot_product_flash_attention(
            query, _repeated(key, groups), _repeated(value, groups), dropout_p, is_causal, scale=scale
        )[0]
    if query.dtype in (*LOW, torch.float32):
        mask = None if attn_mask is None else attn_mask.expand(*query.shape[:-1], key.shape[-2])
        return aten._scaled_dot_product_efficient_attention(
            query, _repeated(key, groups), _repeated(value, groups), mask, train, dropout_p, is_causal, scale=scale
        )[0]
    return NotImplemented


def _repeated(tensor: torch.Tensor, groups: int) -> torch.Tensor:
    """Grouped heads: the kernels read the shared ones; only the shape is repeated."""
    return tensor if groups == 1 else tensor.repeat_interleave(groups, dim=1)


def dropout(program: Program, input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
    """One kernel that makes the mask and applies it."""
    del program
    if not training or p == 0.0 or input.numel() == 0 or inplace:
        return NotImplemented
    return torch.native_dropout(input, p, training)[0]


def rms_norm(program: Program, input: torch.Tensor, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:  # noqa: A002
    """One kernel, since torch 2.9."""
    del program
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    return aten._fused_rms_norm(input, shape, weight, eps)[0]


def batch_norm(
    program: Program,
    input: torch.Tensor,  # noqa: A002
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Any:
    """cuDNN's kernel where it is taken: no bf16, weight and bias there, three dimensions or more."""
    del program
    cudnn = (
        cudnn_enabled
        and input.dtype in (torch.float32, torch.float16)
        and weight is not None
        and bias is not None
        and input.dim() >= 3
        and (training or running_mean is not None)
    )
    if not cudnn:
        return NotImplemented
    return aten.cudnn_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


def _rnn(mode: int) -> Callable[..., Any]:
    def run(program: Program, *args: Any) -> Any:
        del program
        if isinstance(args[2], torch.Tensor) or (isinstance(args[1], torch.Tensor) and args[1].dtype == torch.int64):
            data, sizes, hidden, weights, biased, layers, rate, train, both = args
            return _call(data, hidden, weights, biased, layers, rate, train, both, False, sizes.tolist())
        data, hidden, weights, biased, layers, rate, train, both, batch_first = args
        return _call(data, hidden, weights, biased, layers, rate, train, both, batch_first, [])

    def _call(
        data: Any, hidden: Any, weights: Any, biased: bool, layers: int, rate: float, train: bool, both: bool,
        batch_first: bool, sizes: list[int],
    ) -> Any:  # fmt: skip
        hx, cx = hidden if isinstance(hidden, (list, tuple)) else (hidden, None)
        out, h, c, _, _ = aten._cudnn_rnn(
            data, list(weights), 4 if biased else 2, None, hx, cx, mode, int(hx.shape[-1]), 0, layers, batch_first,
            float(rate), train, both, sizes, None,
        )  # fmt: skip
        return (out, h, c) if cx is not None else (out, h)

    return run


CHOICES: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": attention,
    "dropout": dropout,
    "rms_norm": rms_norm,
    "batch_norm": batch_norm,
    "rnn_relu": _rnn(0),
    "rnn_tanh": _rnn(1),
    "lstm": _rnn(2),
    "gru": _rnn(3),
}
