"""Ops on host tensors: they run, unless the tensors are large; those keep shape and lose values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from conccl.workloads.capture.tensors import tensors_in

LARGE_NUMEL = 1 << 20
"""Host tensors with more elements get no values: memory that nobody writes costs nothing."""


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
    """The op itself, or its shapes alone."""
    inputs = tensors_in((args, kwargs))
    largest = max((tensor.numel() for tensor in inputs), default=0)
    if largest <= LARGE_NUMEL and not _makes_large(args):
        return func(*args, **kwargs)
    if func._schema.is_mutable:  # filling or updating memory that has no values
        return args[0]
    if func.is_view or func in _ALLOCATES:
        return func(*args, **kwargs)
    return _without_values(func, args, kwargs)


_ALLOCATES = frozenset(
    {
        torch.ops.aten.empty.memory_format,
        torch.ops.aten.empty_strided.default,
        torch.ops.aten.empty_like.default,
        torch.ops.aten.detach.default,
        torch.ops.aten.lift_fresh.default,
    }
)


def _makes_large(args: tuple[Any, ...]) -> bool:
    """Whether the first argument is a shape of many elements."""
    if not args or not isinstance(args[0], (list, tuple)):
        return False
    size = 1
    for item in args[0]:
        if not isinstance(item, int):
            return False
        size *= item
    return size > LARGE_NUMEL


def _without_values(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    meta = torch.device("meta")
    options = {key: _moved(value, meta) for key, value in kwargs.items()}
    if options.get("device") is not None or not tensors_in(args):
        options["device"] = meta
    options.pop("pin_memory", None)
    out = func(*tree_map(lambda value: _moved(value, meta), args), **options)
    return tree_map(lambda value: _moved(value, torch.device("cpu")), out)


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device)
    return value
