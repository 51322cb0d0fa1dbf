"""Operators of the host whose inputs tell what their kernels have to do: names kept, inputs parsed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from conccl.core.kinds import DType
from conccl.traces.dtypes import dtype_named

GEMMS = frozenset({"mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "_addmm_activation"})

NORMS = frozenset({"native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm"})

SOFTMAXES = frozenset({"_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data"})

ELEMENTWISE = frozenset(
    {
        *("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "pow", "neg", "exp", "log", "sqrt"),
        *("rsqrt", "sigmoid", "sigmoid_backward", "tanh", "tanh_backward", "relu", "clamp_min", "clamp_min_"),
        *("threshold_backward", "gelu", "gelu_backward", "silu", "silu_backward", "silu_", "copy_", "fill_"),
        *("lerp_", "addcmul_", "addcdiv_", "eq", "ne", "gt", "lt", "ge", "le", "where", "masked_fill_"),
    }
)

PREFIX = "aten::"

KEPT = frozenset(PREFIX + name for name in GEMMS | NORMS | SOFTMAXES | ELEMENTWISE)
"""Operators whose inputs are read; of all others only that they were there."""

MOST_NUMBERS = 64
"""Dimensions and inputs beyond this are no operator's."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOperator:
    """An operator as it was called; parallel entries, one an input."""

    name: str
    """Without its namespace."""
    shapes: tuple[Shape, ...]
    """Of what is no tensor: ()."""
    dtypes: tuple[DType | None, ...]
    """None: no tensor, or not recorded."""
    strides: tuple[Shape, ...] | None
    """None: not recorded."""


def host_operator(name: str, /, *, dims: bytes, types: bytes, strides: bytes) -> HostOperator | None:
    """From the texts of its arguments; None where the shapes are not lists of sizes."""
    shapes = _lists(dims)
    if shapes is None:
        return None
    told = _decoded(types)
    names = told if isinstance(told, list) and len(told) == len(shapes) else [None] * len(shapes)
    apart = _lists(strides)
    return HostOperator(
        name=name.removeprefix(PREFIX),
        shapes=shapes,
        dtypes=tuple(dtype_named(each) for each in names),
        strides=apart if apart is not None and len(apart) == len(shapes) else None,
    )


def _lists(text: bytes) -> tuple[Shape, ...] | None:
    """``[[2, 3], [], [4]]``; what is a list of something else (a list of tensors) is no shape."""
    value = _decoded(text)
    if not isinstance(value, list) or len(value) > MOST_NUMBERS:
        return None
    return tuple(tuple(entry) if _is_shape(entry) else () for entry in value)


def _is_shape(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) <= MOST_NUMBERS
        and all(size.__class__ is int and 0 <= size < 1 << 62 for size in entry)
    )


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.MsgspecError, RecursionError):
        return None
