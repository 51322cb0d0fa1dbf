"""Operators that take functions: flex attention as its compiled kernel, others as their parts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch._ops import HigherOrderOperator

from conccl.workloads.capture.interception import KEYS

aten = torch.ops.aten

MOSTLY_MASKED = 0.75
"""Attention over a smaller share of the scores than this is taken as causal attention."""


@contextlib.contextmanager
def higher_order() -> Iterator[None]:
    """Let operators that take functions through the interception meanwhile."""
    keys = [getattr(torch._C.DispatchKey, name) for name in KEYS]
    original = HigherOrderOperator.dispatch

    def dispatch(op: Any, key: Any, /, *args: Any, **kwargs: Any) -> Any:
        if key not in keys:
            return original(op, key, *args, **kwargs)
        if op.name() == "flex_attention":
            return _flex_attention(*args)
        for own in keys:
            op.fallthrough(own)
        return op(*args, **kwargs)

    with mock.patch.object(HigherOrderOperator, "dispatch", dispatch):
        yield


def _flex_attention(*args: Any) -> tuple[torch.Tensor, ...]:
    """The fused kernel, taken to be as fast as flash attention, causal where much of it is masked.

    What the functions for scores and mask cost is left out.
    """
    query, key, value, _, mask, scale = args[:6]
    causal = _share(mask, query, key) < MOSTLY_MASKED and query.shape[-2] == key.shape[-2]
    with torch._C.DisableTorchFunction():
        found = aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal, scale=scale)
    return found[0], found[1], found[1]


POINTS = 64
"""Places along each side of the scores at which the mask is asked."""


def _share(mask: Any, query: torch.Tensor, key: torch.Tensor) -> float:
    """Of all scores, those that the mask leaves; 1 where it depends on what is on the GPU."""
    rows = torch.linspace(0, query.shape[-2] - 1, POINTS, device="cpu").long()[:, None]
    columns = torch.linspace(0, key.shape[-2] - 1, POINTS, device="cpu").long()[None, :]
    first = torch.zeros((), dtype=torch.int64, device="cpu")
    try:
        kept = mask[-1](first, first, rows, columns)
        return float(kept.expand(POINTS, POINTS).float().mean())
    except Exception:  # whatever the program's function raises about tensors of the host
        return 1.0
