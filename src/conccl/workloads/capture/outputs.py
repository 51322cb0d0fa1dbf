"""Output shapes of CUDA ops: PyTorch's own rules for the meta device, ours where it has none.

Where neither knows an op, it runs on the host on zeros of the same shapes, and its outputs give the shapes.
Sizes that depend on data come from the data where they are known; else every element counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from conccl.core.errors import InputError
from conccl.workloads.capture.tensors import is_channels_last, tensors_in
from conccl.workloads.capture.values import Values

aten = torch.ops.aten

TRIAL_NUMEL = 1 << 24
"""Ops without a rule for shapes are tried on the host up to this many elements."""


def shaped(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], values: Values, /) -> Any:
    """What the op returns, as meta tensors."""
    own = OUTPUTS.get(func)
    if own is not None:
        return own(*args, **kwargs)
    sized = SIZED_BY_DATA.get(func)
    if sized is not None:
        return sized(values, *args, **kwargs)
    try:
        return func(*args, **kwargs)
    except NotImplementedError as error:
        return _tried_on_host(func, args, kwargs, values, error)


def _tried_on_host(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], values: Values, reason: Exception
) -> Any:
    numel = sum(tensor.numel() for tensor in tensors_in((args, kwargs)))
    if numel > TRIAL_NUMEL:
        raise InputError(
            f"{func}: PyTorch has no rule for the shapes that it returns, and {numel} elements are too many"
            " to try it on the host. Use smaller inputs, or another op in its place."
        ) from reason

    def on_host(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if not isinstance(value, torch.Tensor) or not value.is_meta:
            return value
        known = values.of(value)
        return torch.zeros(value.shape, dtype=value.dtype) if known is None else known.clone()

    def on_device(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")

    host_args, host_kwargs = tree_map(on_host, (args, kwargs))
    returned = func(*host_args, **host_kwargs)
    if func._schema.is_mutable and returned is not None:
        changed = {
            id(new): old
            for new, old in zip(tensors_in((host_args, host_kwargs)), tensors_in((args, kwargs)), strict=True)
        }
        return tree_map(
            lambda value: changed.get(id(value)) if id(value) in changed else on_device(value), returned
        )
    return tree_map(on_device, returned)


def _like(tensor: torch.Tensor, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype or tensor.dtype, device="meta")


def _convolution(input_: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Channels last where input or weight lie so (cuDNN)."""
    out: torch.Tensor = aten.convolution.default(input_, weight, *rest)
    return _in_format_of((input_, weight), out)


def _convolution_backward(
    grad: torch.Tensor, input_: torch.Tensor, weight: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor | None, ...]:
    outs = aten.convolution_backward.default(grad, input_, weight, *rest)
    images = tuple(None if out is None else _in_format_of((input_, weight), out) for out in outs[:2])
    return (*images, outs[2])


def _in_format_of(tensors: tuple[torch.Tensor, ...], out: torch.Tensor) -> torch.Tensor:
    last = out.dim() in (4, 5) and any(is_channels_last(tensor) for tensor in tensors)
    if not last:
        return out
    return out.to(memory_format=torch.channels_last if out.dim() == 4 else torch.channels_last_3d)


def _cudnn_rnn(
    input_: torch.Tensor, weight: Any, weight_stride0: int, weight_buf: Any, hx: torch.Tensor,
    cx: torch.Tensor | None, mode: int, hidden_size: int, proj_size: int, num_layers: int, batch_first: bool,
    dropout: float, train: bool, bidirectional: bool, batch_sizes: list[int], dropout_state: Any,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    del weight_stride0, weight_buf, mode, dropout, dropout_state
    ways = 2 if bidirectional else 1
    width = ways * (proj_size or hidden_size)
    if batch_sizes:
        out = _like(input_, int(input_.shape[0]), width)
        batch = int(batch_sizes[0])
    else:
        out = _like(input_, int(input_.shape[0]), int(input_.shape[1]), width)
        batch = int(input_.shape[0] if batch_first else input_.shape[1])
    hidden = _like(input_, num_layers * ways, batch, proj_size or hidden_size)
    cell = _like(input_, num_layers * ways, batch, hidden_size) if cx is not None else _like(input_, 0)
    reserve = _like(input_, out.numel() * 8 if train else 0, dtype=torch.uint8)
    flat = sum(tensor.numel() for tensor in weight)
    return out, hidden, cell, reserve, _like(hx, flat)


def _cudnn_rnn_backward(
    input_: torch.Tensor,
    weight: list[torch.Tensor],
    weight_stride0: int,
    weight_buf: torch.Tensor,
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    *rest: Any,
) -> tuple[Any, ...]:
    del weight_stride0, weight_buf
    wanted = rest[-1]
    return (
        torch.empty_like(input_),
        torch.empty_like(hx),
        torch.empty_like(cx) if cx is not None else _like(input_, 0),
        [torch.empty_like(tensor) for tensor in weight] if wanted[3] else [],
    )


def _lstm_cell(gates: torch.Tensor, _: torch.Tensor, cx: torch.Tensor, *__: Any) -> tuple[torch.Tensor, ...]:
    return torch.empty_like(cx), torch.empty_like(cx), torch.empty_like(gates)


def _lstm_cell_backward(
    grad_hy: torch.Tensor | None, grad_cy: torch.Tensor | None, cx: torch.Tensor, cy: torch.Tensor,
    workspace: torch.Tensor, has_bias: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    del grad_hy, grad_cy, cy
    bias = _like(workspace, int(workspace.shape[-1])) if has_bias else _like(workspace, 0)
    return torch.empty_like(workspace), torch.empty_like(cx), bias


def _gru_cell(gates: torch.Tensor, _: torch.Tensor, hx: torch.Tensor, *__: Any) -> tuple[torch.Tensor, ...]:
    batch, hidden = int(hx.shape[0]), int(hx.shape[1])
    return torch.empty_like(hx), _like(gates, batch, 5 * hidden)


def _gru_cell_backward(
    grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor, ...]:
    batch, hidden = int(grad_hy.shape[0]), int(grad_hy.shape[1])
    gates = _like(workspace, batch, 3 * hidden)
    bias = _like(workspace, 3 * hidden) if has_bias else _like(workspace, 0)
    return gates, torch.empty_like(gates), torch.empty_like(grad_hy), bias, torch.empty_like(bias)


def _ctc_loss(
    log_probs: torch.Tensor, targets: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    steps, batch = int(log_probs.shape[0]), int(log_probs.shape[1])
    longest = int(targets.shape[-1]) if targets.dim() > 1 else max(1, targets.numel() // batch)
    return _like(log_probs, batch), _like(log_probs, batch, steps, 2 * longest + 1)


def _ctc_loss_backward(grad: torch.Tensor, log_probs: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    del grad
    return torch.empty_like(log_probs)


def _rms_norm(
    input_: torch.Tensor, shape: Any, weight: torch.Tensor | None, eps: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    del weight, eps
    kept = [*input_.shape[: input_.dim() - len(shape)], *(1 for _ in shape)]
    return torch.empty_like(input_), _like(input_, *kept, dtype=torch.float32)


def _rms_norm_backward(
    grad: torch.Tensor,
    input_: torch.Tensor,
    shape: Any,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    mask: Any,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    del grad, shape, rstd
    given = torch.empty_like(input_) if mask[0] else None
    return given, torch.empty_like(weight) if mask[1] and weight is not None else None


def _unscale(grads: list[torch.Tensor], found_inf: torch.Tensor, inverse_scale: torch.Tensor) -> None:
    """Updates in place; shapes stay."""
    del grads, found_inf, inverse_scale


def _unchanged(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor


def _nonzero(values: Values, tensor: torch.Tensor) -> torch.Tensor:
    known = values.of(tensor)
    found = tensor.numel() if known is None else int(known.count_nonzero())
    return _like(tensor, found, tensor.dim(), dtype=torch.int64)


def _masked_select(values: Values, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    chosen = values.of(mask)
    most = torch.broadcast_shapes(tensor.shape, mask.shape)
    if chosen is None:
        return _like(tensor, most.numel())
    return _like(tensor, int(chosen.expand(most).sum()))


def _unique(func: Any) -> Callable[..., Any]:
    def rule(values: Values, tensor: torch.Tensor, *rest: Any, **options: Any) -> Any:
        known = values.of(tensor)
        source = torch.arange(tensor.numel()) if known is None else known
        if known is None and tensor.dim() > 1 and func is aten.unique_dim.default:
            source = torch.arange(tensor.numel()).view(tensor.shape)
        outs = func(source, *rest, **options)
        first = _like(tensor, *outs[0].shape)
        return (first, *(_like(out, *out.shape) for out in outs[1:]))

    return rule


def _bincount(
    values: Values, tensor: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    known = values.of(tensor)
    longest = minlength if known is None or not known.numel() else max(minlength, int(known.max()) + 1)
    dtype = torch.int64 if weights is None else torch.float64
    if weights is not None and weights.dtype == torch.float32:
        dtype = torch.float32
    return _like(tensor, max(1, longest), dtype=dtype)


def _repeat_interleave(values: Values, repeats: torch.Tensor, output_size: int | None = None) -> torch.Tensor:
    known = values.of(repeats)
    size = output_size
    if size is None:
        size = int(known.sum()) if known is not None else repeats.numel()
    return _like(repeats, size)


def _coalesced(tensor: torch.Tensor) -> torch.Tensor:
    """No two indices are taken to be equal."""
    parts = tensor._indices(), tensor._values()
    return torch.sparse_coo_tensor(*parts, tensor.shape, check_invariants=False)


def _sparse(
    sparse_dim: int, dense_dim: int, size: Any, indices: torch.Tensor, values: torch.Tensor, **_: Any
) -> torch.Tensor:
    """PyTorch's own on the meta device has no elements."""
    del sparse_dim, dense_dim
    return torch.sparse_coo_tensor(indices, values, size, check_invariants=False)


def _same(func: Any) -> Callable[..., Any]:
    """PyTorch forgets the elements of a sparse tensor that is copied on the meta device."""

    def rule(tensor: torch.Tensor, *rest: Any, **options: Any) -> Any:
        if tensor.layout is torch.sparse_coo:
            return _coalesced(tensor)
        return func(tensor, *rest, **options)

    return rule


def _sparse_mask(tensor: torch.Tensor, mask: torch.Tensor, *_: Any) -> torch.Tensor:
    values = torch.empty_like(mask._values(), dtype=tensor.dtype)
    indices = mask._indices()
    return torch.sparse_coo_tensor(indices, values, mask.shape, check_invariants=False, is_coalesced=True)


def _added(tensor: torch.Tensor, other: Any, *rest: Any, **options: Any) -> Any:
    """To a dense tensor a sparse one may be added."""
    if isinstance(other, torch.Tensor) and other.layout is torch.sparse_coo:
        return tensor
    return aten.add_.Tensor(tensor, other, *rest, **options)


OUTPUTS: dict[Any, Callable[..., Any]] = {
    aten._coalesce.default: _coalesced,
    aten._sparse_coo_tensor_with_dims_and_tensors.default: _sparse,
    aten.detach.default: _same(aten.detach.default),
    aten.clone.default: _same(aten.clone.default),
    aten.sparse_mask.default: _sparse_mask,
    aten.add_.Tensor: _added,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten._cudnn_rnn.default: _cudnn_rnn,
    aten._cudnn_rnn_backward.default: _cudnn_rnn_backward,
    aten._thnn_fused_lstm_cell.default: _lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_cell_backward,
    aten._thnn_fused_gru_cell.default: _gru_cell,
    aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward,
    aten._fused_rms_norm.default: _rms_norm,
    aten._fused_rms_norm_backward.default: _rms_norm_backward,
    aten._ctc_loss.default: _ctc_loss,
    aten._ctc_loss.Tensor: _ctc_loss,
    aten._ctc_loss_backward.default: _ctc_loss_backward,
    aten._ctc_loss_backward.Tensor: _ctc_loss_backward,
    aten._amp_foreach_non_finite_check_and_unscale_.default: _unscale,
    aten._amp_update_scale_.default: _unchanged,
}
"""Ops whose shapes follow from shapes."""

SIZED_BY_DATA: dict[Any, Callable[..., Any]] = {
    aten.nonzero.default: _nonzero,
    aten.masked_select.default: _masked_select,
    aten._unique2.default: _unique(aten._unique2.default),
    aten._unique.default: _unique(aten._unique.default),
    aten.unique_dim.default: _unique(aten.unique_dim.default),
    aten.unique_consecutive.default: _unique(aten.unique_consecutive.default),
    aten.bincount.default: _bincount,
    aten.repeat_interleave.Tensor: _repeat_interleave,
}
"""Ops whose shapes follow from data: they get the values before their own arguments."""
