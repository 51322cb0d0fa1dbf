"""Which fused kernel does an attention on CUDA, and attention in the fast path of nn.TransformerEncoder."""

from __future__ import annotations

from typing import Any

import torch

from conccl.workloads.capture.interception import Handler

aten = torch.ops.aten

LOW = (torch.bfloat16, torch.float16)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """The first backend that takes it: cuDNN, flash, memory-efficient, else PyTorch's own formula.

    The order and the conditions are those of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp for
    Hopper and Blackwell with cuDNN 9; older GPUs ask flash first, which takes the same kernels' time here.
    """
    if query.dim() != 4 or 0 in (*query.shape, *key.shape):
        return NotImplemented
    if attn_mask is not None and attn_mask.requires_grad:
        return NotImplemented  # no fused kernel gives a mask its gradient
    train = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    mask = _as_bias(attn_mask, query.dtype)
    backends = torch.backends.cuda
    if backends.cudnn_sdp_enabled() and _cudnn_takes(query, key, value, mask, is_causal, train):
        return aten._scaled_dot_product_cudnn_attention(
            query, key, value, mask, train, dropout_p, is_causal, scale=scale
        )[0]
    if backends.flash_sdp_enabled() and _flash_takes(query, key, value, mask, is_causal):
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if backends.mem_efficient_sdp_enabled() and _efficient_takes(query, key, value, enable_gqa):
        bias = None if mask is None else _aligned(mask).expand(*query.shape[:-1], key.shape[-2])
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, train, dropout_p, is_causal, scale=scale
        )[0]
    return NotImplemented


def _as_bias(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """Kernels add a mask of the query's type; one of booleans is converted first."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    allowed, forbidden = torch.zeros((), dtype=dtype), torch.full((), float("-inf"), dtype=dtype)
    return torch.where(mask, allowed, forbidden)


def _aligned(mask: torch.Tensor) -> torch.Tensor:
    """The memory-efficient kernel reads 16 elements at once: rows are padded to that and cut again."""
    columns = int(mask.shape[-1])
    if columns % 16 == 0:
        return mask
    return torch.nn.functional.pad(mask, (0, 16 - columns % 16))[..., :columns]


def _cudnn_takes(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    train: bool,
) -> bool:
    head_dims = (int(query.shape[-1]), int(value.shape[-1]))
    return (
        query.dtype in LOW
        and query.dtype == key.dtype == value.dtype
        and all(size % 8 == 0 for size in head_dims)
        and max(head_dims) <= (128 if train else 256)
        and not (mask is not None and is_causal)
        and not torch.are_deterministic_algorithms_enabled()
        and all(t.stride(-1) == 1 for t in (query, key, value))
    )


def _flash_takes(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool
) -> bool:
    return (
        query.dtype in LOW
        and mask is None
        and query.shape[-1] == key.shape[-1] == value.shape[-1] <= 256
        and not (is_causal and query.shape[-2] != key.shape[-2])
        and all(t.stride(-1) == 1 for t in (query, key, value))
    )


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    """Heads are padded to a multiple of 8 elements and cut again."""
    size = int(query.shape[-1])
    missing = -size % 8
    if missing:
        query, key, value = (torch.nn.functional.pad(t, (0, missing)) for t in (query, key, value))
        scale = size**-0.5 if scale is None else scale
    out = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
    return out[..., :size] if missing else out  # type: ignore[no-any-return]


def _efficient_takes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool) -> bool:
    alignment = 4 if query.dtype == torch.float32 else 8
    return (
        query.dtype in (*LOW, torch.float32)
        and query.dtype == key.dtype == value.dtype
        and not (enable_gqa and query.shape[1] != key.shape[1])
        and query.shape[-1] % alignment == 0
        and value.shape[-1] % alignment == 0
        and all(t.stride(-1) == 1 for t in (query, key, value))
    )


def native_multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """The fast path of nn.MultiheadAttention: one projection, a fused attention, one projection.

    aten/src/ATen/native/transformers/cuda/attention.cu; one kernel adds the bias and splits heads.
    """
    del average_attn_weights, mask_type
    batch, length, _ = query.shape
    if query is key and key is value:
        projected = query.reshape(-1, embed_dim) @ qkv_weight.t()
    else:
        weights = qkv_weight.chunk(3)
        parts = [x.reshape(-1, embed_dim) @ w.t() for x, w in zip((query, key, value), weights, strict=True)]
        projected = torch.cat(parts, dim=-1)
    split = projected + qkv_bias
    heads = split.view(batch, length, 3, num_head, embed_dim // num_head).permute(2, 0, 3, 1, 4)
    q, k, v = heads.unbind(0)
    bias = None if mask is None else (mask.logical_not() if mask.dtype == torch.bool else mask)
    if bias is not None and bias.dim() == 2:
        bias = bias.view(batch, 1, 1, length) if bias.shape == (batch, length) else bias
    if need_weights:
        scores = (q * (embed_dim // num_head) ** -0.5) @ k.transpose(-2, -1)
        weights_out = torch.softmax(scores, dim=-1)
        attended = weights_out @ v
    else:
        weights_out = None
        attended = scaled_dot_product_attention(q, k, v, bias)
        if attended is NotImplemented:
            attended = aten.scaled_dot_product_attention(q, k, v, bias)
    merged = attended.transpose(1, 2).reshape(batch * length, embed_dim)
    out = torch.addmm(proj_bias, merged, proj_weight.t()).view(batch, length, embed_dim)
    return out, (weights_out.mean(1) if weights_out is not None else torch.empty(0, device="meta"))


def transformer_encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> Any:
    """The fast path of nn.TransformerEncoderLayer (aten/src/ATen/native/transformers/transformer.cpp)."""
    del mask_type

    def attend(x: torch.Tensor) -> torch.Tensor:
        return native_multi_head_attention(  # type: ignore[no-any-return]
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False
        )[0]

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        hidden = aten._addmm_activation(ffn_bias_1, flat, ffn_weight_1.t(), use_gelu=use_gelu)
        return torch.addmm(ffn_bias_2, hidden, ffn_weight_2.t()).view(x.shape)

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.layer_norm(x, [embed_dim], weight, bias, eps)

    if norm_first:
        x = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return x + feed_forward(norm(x, norm_weight_2, norm_bias_2))
    x = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(x + feed_forward(x), norm_weight_2, norm_bias_2)


HANDLERS: dict[str, Handler] = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "_native_multi_head_attention": native_multi_head_attention,
    "_transformer_encoder_layer_fwd": transformer_encoder_layer,
}
