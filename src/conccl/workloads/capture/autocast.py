"""What ``torch.autocast("cuda")`` casts, by PyTorch's lists for CUDA (aten/src/ATen/autocast_mode.h)."""

from __future__ import annotations

from typing import Any

import torch

LOWER = frozenset(
    {
        "linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "addbmm", "baddbmm", "addmv", "addr",
        "mv", "einsum", "chain_matmul", "multi_dot", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
        "conv_transpose2d", "conv_transpose3d", "conv_tbc", "prelu", "lstm_cell", "gru_cell", "rnn_tanh_cell",
        "rnn_relu_cell", "lstm", "gru", "rnn_tanh", "rnn_relu", "scaled_dot_product_attention",
    }
)  # fmt: skip
"""Run in the lower precision."""

FLOAT = frozenset(
    {
        "softmax", "log_softmax", "layer_norm", "group_norm", "rms_norm", "nll_loss", "cross_entropy", "mse_loss",
        "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss", "cosine_similarity", "cdist",
        "exp", "expm1", "log", "log10", "log1p", "log2", "pow", "__pow__", "__rpow__", "reciprocal", "rsqrt", "sinh",
        "cosh", "tan", "acos", "asin", "erfinv", "softplus", "norm", "cumsum", "cumprod", "prod", "sum", "renorm",
        "gelu_backward", "upsample", "interpolate", "binary_cross_entropy_with_logits", "logsumexp", "stft",
    }
) - {"interpolate", "gelu_backward", "upsample"}  # fmt: skip
"""Run in fp32."""


def cast_arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as autocast would pass them on; unchanged where it is off or does not list the function."""
    if not torch.is_autocast_enabled("cuda"):
        return args, kwargs
    name = getattr(func, "__name__", "")
    if name in LOWER:
        target = torch.get_autocast_dtype("cuda")
        wanted = (torch.float32, torch.float16, torch.bfloat16)
    elif name in FLOAT:
        target, wanted = torch.float32, (torch.float16, torch.bfloat16)
    else:
        return args, kwargs
    return _cast(args, target, wanted), {key: _cast(value, target, wanted) for key, value in kwargs.items()}


_CACHE: dict[int, tuple[Any, torch.Tensor]] = {}
"""id of a leaf weight -> (the weight, its cast): PyTorch casts a weight once an autocast region."""


def clear_cache() -> None:
    """Forget casts: at the end of an autocast region."""
    _CACHE.clear()


def _cast(value: Any, target: torch.dtype, wanted: tuple[torch.dtype, ...]) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype not in wanted or value.dtype == target:
            return value
        if value.is_leaf and value.requires_grad and target != torch.float32:
            if id(value) not in _CACHE:
                _CACHE[id(value)] = (value, value.to(target))
            return _CACHE[id(value)][1]
        return value.to(target)
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(item, target, wanted) for item in value)
    return value
