"""What a caller asks of a collective besides its tensors: PyTorch's option objects, or plain values.

A process group is called in two ways: torch.distributed passes options (``AllreduceOptions``), people pass an
operation or a root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from conccl.core.errors import InputError

_REDUCTIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.BAND: "band",
    dist.ReduceOp.BOR: "bor",
    dist.ReduceOp.BXOR: "bxor",
}


class Asked(NamedTuple):
    """The choices of one call."""

    reduction: str
    root: int
    is_async: bool
    """Whether the caller goes on before the call is complete."""


def asked(opts: Any, /, *, op: Any = None, root: int = 0) -> Asked:
    """The choices that options, an operation or a root say."""
    if opts is None or isinstance(opts, int):
        return Asked(reduction(op), root if opts is None else opts, False)
    if hasattr(opts, "asyncOp"):
        given = getattr(opts, "reduceOp", None)
        return Asked("" if given is None else reduction(given), getattr(opts, "rootRank", 0), opts.asyncOp)
    return Asked(reduction(opts), root, False)


def reduction(op: Any, /) -> str:
    """A reduction by the name that the transports use; sum where none is given."""
    if op is None:
        return "sum"
    found = _REDUCTIONS.get(getattr(op, "op", op))
    if found is None:
        raise InputError(f"{op} is not supported; {', '.join(one.name for one in _REDUCTIONS)} are.")
    return found


def listed(tensors: torch.Tensor | Sequence[torch.Tensor], /) -> list[torch.Tensor]:
    """A tensor as a list of one; lists as they are."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def only(items: Any, /) -> Any:
    """The one tensor, or list of tensors, that a call takes."""
    if isinstance(items, torch.Tensor):
        return items
    if len(items) != 1:
        raise InputError(f"{len(items)} tensors (or lists of them) in a call that takes one.")
    return items[0]


def only_list(items: Any, /) -> list[torch.Tensor]:
    """The one list of tensors that a call takes, given as it is or in a list."""
    if items and isinstance(items[0], torch.Tensor):
        return list(items)
    return list(only(items))
