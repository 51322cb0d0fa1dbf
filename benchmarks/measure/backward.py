"""The backward pass of a call, alone: the forward pass runs once, outside what is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from graphs import Call
from pool import Pool
from torch import Tensor


def backward_of(function: Callable[..., Tensor], inputs: Sequence[Tensor], /, *, pool: Pool) -> Call:
    """A call that computes the gradients of all inputs of ``function``, given a random one of its result."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    result = function(*leaves)
    gradient = pool.take(*result.shape, dtype=result.dtype)
    if result.dim() == 4 and result.is_contiguous(memory_format=torch.channels_last):
        gradient = gradient.contiguous(memory_format=torch.channels_last)
    return lambda: torch.autograd.grad(result, leaves, gradient, retain_graph=True)
