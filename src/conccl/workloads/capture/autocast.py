"""What ``torch.autocast("cuda")`` casts, by the lists of aten/src/ATen/autocast_mode.h."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from conccl.workloads.capture.interception import Handler
from conccl.workloads.capture.tensors import is_on_device

LOWER = (
    "_convolution.deprecated", "_convolution", "conv1d", "conv2d", "conv3d", "conv1d.padding",
    "conv2d.padding",
    "conv3d.padding", "conv_tbc", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input",
    "convolution", "prelu", "addmm", "addmv", "addr", "matmul", "einsum", "mm", "mv", "linalg_vecdot",
    "linear",
    "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot", "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "scaled_dot_product_attention", "lstm.input", "lstm.data", "gru.input", "gru.data", "rnn_tanh.input",
    "rnn_tanh.data", "rnn_relu.input", "rnn_relu.data",
)  # fmt: skip
"""Run in the lower precision; recurrent networks because ``_cudnn_rnn`` does (autocast_mode.cpp, RNN.cpp)."""

FLOAT = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
    "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm",
    "native_layer_norm", "rms_norm", "group_norm", "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim",
    "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d",
    "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss",
    "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss",
    "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
    "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d",
    "upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa",
)  # fmt: skip
"""Run in fp32."""

FLOAT_RESULT = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
    "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList",
)  # fmt: skip
"""Asked for an fp32 result where no other type was."""

PROMOTED = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put",
    "tensordot",
    "scatter_add",
)  # fmt: skip
"""Run in the widest type among the arguments."""

FORBIDDEN = ("binary_cross_entropy",)
"""Unsafe in low precision: PyTorch refuses them."""

_LOW = (torch.float16, torch.bfloat16)
_FLOATS = (*_LOW, torch.float32)


class Autocast:
    """Casts arguments as autocast would, and keeps the casts of weights for as long as it would."""

    def __init__(self) -> None:
        self._weights: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """id of a leaf weight -> (the weight, its cast)."""

    def clear(self) -> None:
        """Forget casts: at the end of an autocast region."""
        self._weights.clear()

    def handlers(self) -> dict[str, Handler]:
        """Op -> what stands before it."""
        return {
            **{name: self._casting(name, self._lower) for name in LOWER},
            **{name: self._casting(name, self._float) for name in FLOAT},
            **{name: self._casting(name, self._widest) for name in PROMOTED},
            **{name: _asking_for_float(name) for name in FLOAT_RESULT},
            **{name: _refusing(name) for name in FORBIDDEN},
        }

    def _casting(
        self, name: str, cast: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, dict[str, Any]]]
    ) -> Handler:
        op = _overload(name)

        def handler(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_autocast_enabled("cuda"):
                return NotImplemented
            args, kwargs = cast(args, kwargs)
            return op(*args, **kwargs)

        return handler

    def _lower(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return self._all_cast(args, kwargs, torch.get_autocast_dtype("cuda"))

    def _float(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return self._all_cast(args, kwargs, torch.float32)

    def _widest(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        wide = any(value.dtype == torch.float32 for value in _eligible((args, tuple(kwargs.values()))))
        return self._float(args, kwargs) if wide else (args, kwargs)

    def _all_cast(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], target: torch.dtype
    ) -> tuple[Any, dict[str, Any]]:
        """The last argument first: the order in which PyTorch's binaries, built by GCC, evaluate them."""
        named = {key: self._cast(value, target) for key, value in reversed(kwargs.items())}
        return tuple(reversed([self._cast(value, target) for value in reversed(args)])), named

    def _cast(self, value: Any, target: torch.dtype) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype == target or not _is_eligible(value):
                return value
            return self._weight(value, target) if _is_weight(value, target) else value.to(target)
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast(item, target) for item in value)
        return value

    def _weight(self, weight: torch.Tensor, target: torch.dtype) -> torch.Tensor:
        if not torch.is_autocast_cache_enabled():
            return weight.to(target)
        if id(weight) not in self._weights:
            self._weights[id(weight)] = (weight, weight.to(target))
        return self._weights[id(weight)][1]


def _is_weight(tensor: torch.Tensor, target: torch.dtype) -> bool:
    """Whether autocast keeps its cast: leaves in fp32 that want a gradient."""
    return (
        target in _LOW
        and tensor.dtype == torch.float32
        and tensor.requires_grad
        and tensor.is_leaf
        and not tensor._is_view()
    )


def _is_eligible(tensor: torch.Tensor) -> bool:
    return tensor.dtype in _FLOATS and is_on_device(tensor)


def _eligible(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value] if _is_eligible(value) else []
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _eligible(item)]
    return []


def _asking_for_float(name: str) -> Handler:
    op = _overload(name)

    def handler(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_autocast_enabled("cuda") or not _eligible(args[:1]):
            return NotImplemented
        if kwargs.get("dtype") is None and not any(isinstance(value, torch.dtype) for value in args):
            kwargs = {**kwargs, "dtype": torch.float32}
            args = args[:-1] if args and args[-1] is None else args
        return op(*args, **kwargs)

    return handler


def _refusing(name: str) -> Handler:
    def handler(*_: Any, **__: Any) -> Any:
        if torch.is_autocast_enabled("cuda"):
            raise RuntimeError(
                f"{name} is unsafe under autocast on CUDA and PyTorch refuses it there."
                f" Use {name}_with_logits, or leave autocast for it."
            )
        return NotImplemented

    return handler


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
