"""From an aten op to its kernels: families by name, elementwise ops by PyTorch's tag, the rest bounded."""

from __future__ import annotations

import functools
from typing import Any

import torch

from conccl.core.kinds import Access
from conccl.core.ops import Elementwise
from conccl.workloads.capture.kernels import (
    convolutions,
    copies,
    indexing,
    losses,
    matmul,
    norms,
    optimizers,
    pooling,
    reductions,
    sampling,
    sequences,
    spectral,
)
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.kernels.copies import copied, filled
from conccl.workloads.capture.program import HostWait, Program
from conccl.workloads.capture.tensors import access_of, touched_nbytes
from conccl.workloads.captured import Kernel, Modelled

_RULES: dict[str, Rule] = {
    **copies.RULES,
    **convolutions.RULES,
    **indexing.RULES,
    **losses.RULES,
    **matmul.RULES,
    **norms.RULES,
    **optimizers.RULES,
    **pooling.RULES,
    **reductions.RULES,
    **sampling.RULES,
    **sequences.RULES,
    **spectral.RULES,
}
"""Name of the aten op without overload and without the ``_`` of in-place variants -> its kernels."""

_NOTHING = frozenset(
    {
        "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view",
        "_reshape_alias",
        "lift", "lift_fresh", "resize_", "set_", "record_stream", "is_pinned",
        "_has_compatible_shallow_copy_type",
        "_pin_memory", "sym_size", "sym_stride", "is_same_size", "_cudnn_init_dropout_state", "alias_copy",
        "_nested_tensor_size", "_backward", "_version", "_sparse_coo_tensor_with_dims_and_tensors",
    }
)  # fmt: skip
"""Ops that only make or describe tensors."""


def register(name: str, rule: Rule, /) -> None:
    """Teach the table an op: its aten name, and a function from the call to its kernels."""
    _RULES[name] = rule


def has_rule(func: Any, /) -> bool:
    """Whether the table knows this op itself, and not only its parts."""
    name = func._schema.name.removeprefix("aten::")
    return name in _RULES or name.removesuffix("_") in _RULES


def launch(call: AtenCall, program: Program, /, *, cached: float = 0.0) -> None:
    """Launch what the op becomes; ``cached`` is the share of its inputs that L2 holds."""
    launch_ = functools.partial(program.launch, call.name, cached=cached)
    name = call.name
    rule = _RULES.get(name) or _RULES.get(name.removesuffix("_"))
    if rule is not None:
        wait = HostWait.STREAM if name in WAITING else HostWait.NOTHING
        launch_(rule(call), wait=wait)
    elif name in _NOTHING or not (call.inputs or call.outputs):
        launch_()
    elif name.startswith("_foreach_"):
        launch_(optimizers.foreach(call))
    elif not any(tensor.numel() for tensor in (*call.inputs, *call.outputs)):
        launch_()
    elif torch.Tag.pointwise in call.func.tags or name.removesuffix("_") in _POINTWISE:
        launch_([_pointwise(call)])
    else:
        launch_([_bound(call)])


def _pointwise(call: AtenCall) -> Kernel:
    """One kernel; the few that the cost models tell apart by more than their name are named so."""
    name = call.name.removesuffix("_")
    if name in ("gelu", "gelu_backward") and call.argument("approximate") == "tanh":
        return call.elementwise(kind=name.replace("gelu", "gelu_tanh"))
    if name == "pow":
        return _power(call)
    if name in ("where", "masked_fill") and access_of([*call.inputs, *call.outputs]) is Access.CONTIGUOUS:
        return call.elementwise(access=Access.CASTING)
    return call.elementwise()


def _power(call: AtenCall) -> Kernel:
    """The first power is a copy, the zeroth a fill; squares, roots and reciprocals take no logarithm.

    aten/src/ATen/native/Pow.cpp and cuda/PowKernel.cu.
    """
    exponent = call.argument("exponent")
    if isinstance(exponent, torch.Tensor) or isinstance(call.args[0], (int, float)):
        return call.elementwise()
    if exponent == 1 and not call.name.endswith("_"):
        return copied(call.inputs[0], call.outputs[0])
    if exponent == 0:
        return filled(call.outputs[0])
    return call.elementwise(kind="mul" if exponent in (2, 3, -2) else "rsqrt")


WAITING = frozenset(
    {
        "nonzero", "_unique2", "unique2", "masked_select", "unique_consecutive", "unique_dim", "bincount",
        "multinomial",
    }
)  # fmt: skip
"""Ops whose output is as large as their data say, or that check them: the host waits."""

_POINTWISE = frozenset(
    {
        "gelu_backward", "silu_backward", "threshold_backward", "lerp", "where", "masked_fill",
        "elu_backward", "hardtanh_backward", "leaky_relu_backward", "log_sigmoid_forward",
        "log_sigmoid_backward", "rrelu_with_noise", "rrelu_with_noise_backward", "hardswish",
        "hardswish_backward", "hardsigmoid_backward", "softplus_backward", "softshrink_backward",
        "hardshrink_backward", "glu", "glu_backward", "_prelu_kernel", "_prelu_kernel_backward",
        "mish_backward", "logit_backward", "complex", "polar", "linalg_cross", "roll", "flip",
        "_amp_update_scale", "searchsorted", "bucketize", "unfold_backward", "pixel_unshuffle",
        "channel_shuffle", "soft_margin_loss_backward", "_standard_gamma", "_standard_gamma_grad",
        "_sample_dirichlet", "_dirichlet_grad", "binomial", "_fused_dropout", "native_channel_shuffle",
        "_masked_scale", "heaviside", "_nested_tensor_from_mask_left_aligned", "embedding_renorm",
        "_conj_physical", "isin", "sparse_mask", "floor_divide",
        "fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_channel_affine_cachemask",
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
        "_weight_norm_interface", "_weight_norm_interface_backward",
    }
)  # fmt: skip
"""Ops of one kernel that goes over each element, though PyTorch has no such tag on them."""


def _bound(call: AtenCall) -> Kernel:
    """Inputs read once and outputs written once: no kernel does less."""
    read = sum(map(touched_nbytes, call.inputs))
    written = sum(map(touched_nbytes, call.outputs))
    return Kernel(
        name=call.name,
        op=Elementwise(name=call.name, read_nbytes=read, written_nbytes=written),
        modelled=Modelled.BOUND,
    )
