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

ATTENTIONS = frozenset(
    f"_{library}_attention_{direction}"
    for library in ("cudnn", "flash")
    for direction in ("forward", "backward")
)

PREFIX = "aten::"

KEPT = frozenset(PREFIX + name for name in GEMMS | NORMS | SOFTMAXES | ELEMENTWISE | ATTENTIONS | {"cat"})
"""Operators whose inputs are read; of all others only that they were there."""

WITH_VALUES = frozenset(PREFIX + name for name in ATTENTIONS)
"""Those of which also the values of inputs that are no tensors are read."""

MOST_NUMBERS = 64
"""Dimensions and inputs beyond this are no operator's."""

MOST_TENSORS = 4096
"""A list of more tensors than this is not read."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOperator:
    """An operator as it was called; parallel entries, one an input."""

    name: str
    """Without its namespace."""
    shapes: tuple[Shape, ...]
    """Of what is no tensor: ()."""
    lists: tuple[tuple[Shape, ...], ...]
    """The shapes of an input that is a list of tensors; of others: ()."""
    dtypes: tuple[DType | None, ...]
    """None: no tensor, or not recorded."""
    strides: tuple[Shape, ...] | None
    """None: not recorded."""
    values: tuple[str, ...]
    """Texts of inputs that are no tensors, "" for those that are; empty where not recorded."""


def host_operator(
    name: str, /, *, dims: bytes, types: bytes, strides: bytes = b"", values: bytes = b""
) -> HostOperator | None:
    """From the texts of its arguments; None where the shapes are not lists of sizes."""
    sizes = _decoded(dims)
    if not isinstance(sizes, list) or len(sizes) > MOST_NUMBERS:
        return None
    apart = _of_length(_decoded(strides), len(sizes))
    return HostOperator(
        name=name.removeprefix(PREFIX),
        shapes=tuple(map(_shape, sizes)),
        lists=tuple(map(_shapes, sizes)),
        dtypes=tuple(dtype_named(each) for each in _of_length(_decoded(types), len(sizes)) or sizes),
        strides=None if apart is None else tuple(map(_shape, apart)),
        values=tuple(
            each if isinstance(each, str) else "" for each in _of_length(_decoded(values), len(sizes)) or ()
        ),
    )


def _of_length(value: Any, length: int) -> list[Any] | None:
    return value if isinstance(value, list) and len(value) == length else None


def _shape(entry: Any) -> Shape:
    return tuple(entry) if _is_shape(entry) else ()


def _shapes(entry: Any) -> tuple[Shape, ...]:
    """Of ``[[2, 3], [4]]``, a list of tensors."""
    if not isinstance(entry, list) or not 0 < len(entry) <= MOST_TENSORS or not all(map(_is_shape, entry)):
        return ()
    return tuple(map(tuple, entry))


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
