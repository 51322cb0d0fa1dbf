"""`matmul_together`: independent products, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from conccl.core.errors import InputError
from conccl.integrations.together.checks import Operands, require_independent
from conccl.integrations.together.running import decide, run
from conccl.tune.gemms.library import Library

_library: Library | None = None


def use_library(library: Library | None, /) -> None:
    """Decide by this library from now on, where a call names none; None: run one after the other."""
    global _library  # noqa: PLW0603 (the process's default, as PyTorch has them)
    _library = library


def matmul_together(
    pairs: Sequence[Operands],
    /,
    *,
    out: Sequence[torch.Tensor] | None = None,
    library: Library | None = None,
    busy_sms: int = 0,
) -> list[torch.Tensor]:
    """``[a @ b for a, b in pairs]`` of matrices [m, k] and [k, n] that do not depend on each other.

    ``library`` (`conccl.tune.gemms.library.load`) says how many run at once beside something that takes
    ``busy_sms`` SMs; without one, and on the CPU, they run one after the other. ``out`` takes the products of
    matrices that need no gradient. Raises `InputError` where shapes, element types or devices do not fit, or
    outputs share memory with each other or an operand.
    """
    if not pairs:
        return []
    pairs = _as_autocast([(a, b) for a, b in pairs])
    require_independent(pairs, out)
    decision = decide(pairs, library or _library, busy_sms=busy_sms)
    degree = 1 if decision is None else decision.choice.degree
    needs_gradient = torch.is_grad_enabled() and any(one.requires_grad for pair in pairs for one in pair)
    if out is not None:
        if needs_gradient:
            raise InputError("out= takes no products that need gradients; leave out= away, or use no_grad().")
        run(pairs, out, degree=degree)
        return list(out)
    if needs_gradient:
        return list(_Together.apply(degree, *(one for pair in pairs for one in pair)))  # type: ignore[no-untyped-call]
    return products(pairs, degree=degree)


def _as_autocast(pairs: list[Operands]) -> list[Operands]:
    """What autocast makes of the operands, as it does for `torch.mm`."""
    kind = pairs[0][0].device.type
    if not torch.is_autocast_enabled(kind):
        return pairs
    dtype = torch.get_autocast_dtype(kind)
    return [(a.to(dtype), b.to(dtype)) for a, b in pairs]


def products(pairs: Sequence[Operands], /, *, degree: int) -> list[torch.Tensor]:
    """The products in new tensors."""
    out = [a.new_empty((a.shape[0], b.shape[1])) for a, b in pairs]
    run(pairs, out, degree=degree)
    return out


class _Together(torch.autograd.Function):
    """The gradients of products that run together are products that run together."""

    @staticmethod
    def forward(ctx: Any, degree: int, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.degree = degree
        ctx.save_for_backward(*operands)
        pairs = list(zip(operands[::2], operands[1::2], strict=True))
        return tuple(products(pairs, degree=degree))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        operands = ctx.saved_tensors
        wanted = []
        for index, gradient in enumerate(gradients):
            a, b = operands[2 * index], operands[2 * index + 1]
            if gradient is not None and ctx.needs_input_grad[1 + 2 * index]:
                wanted.append((2 * index, (gradient, b.t())))
            if gradient is not None and ctx.needs_input_grad[2 + 2 * index]:
                wanted.append((2 * index + 1, (a.t(), gradient)))
        found: list[torch.Tensor | None] = [None] * len(operands)
        if wanted:
            made = _differentiable([pair for _, pair in wanted], degree=ctx.degree)
            for (place, _), value in zip(wanted, made, strict=True):
                found[place] = value
        return (None, *found)


def _differentiable(pairs: Sequence[Operands], *, degree: int) -> Sequence[torch.Tensor]:
    """Products that may be differentiated again."""
    if torch.is_grad_enabled() and any(one.requires_grad for pair in pairs for one in pair):
        again: tuple[torch.Tensor, ...] = _Together.apply(degree, *(one for pair in pairs for one in pair))  # type: ignore[no-untyped-call]
        return again
    return products(pairs, degree=degree)
