"""The places where models have independent matmuls: projections of one input, experts, adapters, gates."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from conccl.core.errors import InputError
from conccl.integrations.together.matmul import matmul_together
from conccl.integrations.together.queue import GemmQueue
from conccl.tune.gemms.library import Library


def project_together(
    x: torch.Tensor, layers: Sequence[torch.nn.Linear], /, *, library: Library | None = None
) -> list[torch.Tensor]:
    """Several linear layers of one input [..., k]: queries, keys and values, or gate and up."""
    with GemmQueue(library=library) as queue:
        products = [queue.linear(x, layer.weight, layer.bias) for layer in layers]
    return [product.value for product in products]


def expert_matmuls(
    tokens: torch.Tensor, weights: torch.Tensor, counts: Sequence[int], /, *, library: Library | None = None
) -> torch.Tensor:
    """Tokens [t, k], sorted by expert, times weights [experts, n, k]: [t, n].

    ``counts`` says how many tokens each expert has, in order; an expert may have none.
    """
    if len(counts) != len(weights) or sum(counts) != len(tokens) or min(counts, default=0) < 0:
        raise InputError(
            f"counts {list(counts)} for {len(weights)} experts and {len(tokens)} tokens: give one count,"
            " 0 or more, for each expert; they must add up to the tokens."
        )
    parts: tuple[torch.Tensor, ...] = torch.split(tokens, list(counts))
    pairs = [(part, weight.t()) for part, weight in zip(parts, weights, strict=True) if len(part)]
    if not pairs:
        return tokens.new_empty((0, weights.shape[1]))
    return torch.cat(matmul_together(pairs, library=library))


def adapter_matmuls(
    x: Sequence[torch.Tensor],
    down: Sequence[torch.Tensor],
    up: Sequence[torch.Tensor],
    /,
    *,
    scale: float = 1.0,
    library: Library | None = None,
) -> list[torch.Tensor]:
    """LoRA of several adapters: for each, ``scale * x @ down.T @ up.T``; x [t, k], down [r, k], up [n, r]."""
    if not len(x) == len(down) == len(up):
        raise InputError(
            f"{len(x)} inputs, {len(down)} down and {len(up)} up matrices; give as many of each."
        )
    narrow = matmul_together([(one, a.t()) for one, a in zip(x, down, strict=True)], library=library)
    wide = matmul_together([(one, b.t()) for one, b in zip(narrow, up, strict=True)], library=library)
    return [one * scale for one in wide]


def gate_matmuls(
    x: torch.Tensor,
    hidden: torch.Tensor,
    weight_input: torch.Tensor,
    weight_hidden: torch.Tensor,
    /,
    *,
    library: Library | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The two products of an LSTM or GRU step: x [b, i] by [gates, i] and hidden [b, h] by [gates, h]."""
    pairs = [(x, weight_input.t()), (hidden, weight_hidden.t())]
    of_input, of_hidden = matmul_together(pairs, library=library)
    return of_input, of_hidden
