"""The mode that notes every aten op, gives its outputs shapes, and launches the kernels it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from conccl.workloads.capture.kernels.call import AtenCall
from conccl.workloads.capture.kernels.table import kernels_of_call
from conccl.workloads.capture.outputs import OUTPUTS
from conccl.workloads.capture.program import Program
from conccl.workloads.capture.tensors import is_on_device, tensors_in
from conccl.workloads.captured import Phase

LARGE_HOST_NUMEL = 1 << 20
"""Host tensors with more elements get no values: memory that nobody writes costs nothing."""


class Record(TorchDispatchMode):
    """Active while code is captured, below autograd: sees forward and backward alike."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the op on shapes alone and launch its kernels."""
        options = dict(kwargs or {})
        inputs = tensors_in((args, options))
        if not _concerns_device(inputs, options):
            return _on_host(func, args, options, inputs)
        out = _shaped(func, args, options)
        call = AtenCall(func=func, args=args, kwargs=options, out=out)
        self._program.phase = Phase.BACKWARD if _in_backward() else Phase.PYTHON
        kernels_of_call(call, self._program)
        return out


def _concerns_device(inputs: list[torch.Tensor], kwargs: Mapping[str, Any]) -> bool:
    device = kwargs.get("device")
    if device is not None and torch.device(device).type == "meta":
        return True
    return any(is_on_device(tensor) for tensor in inputs)


def _shaped(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The op's outputs as meta tensors, from our own rule where PyTorch has none for the meta device."""
    own = OUTPUTS.get(func)
    if own is not None:
        return own(*args, **kwargs)
    return func(*args, **kwargs)


def _on_host(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[torch.Tensor]) -> Any:
    """A real CPU op, unless its tensors are large: those keep shape and lose values."""
    largest = max((tensor.numel() for tensor in inputs), default=0)
    if largest <= LARGE_HOST_NUMEL and not _makes_large(args):
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
    if not args or not isinstance(args[0], (list, tuple)):
        return False
    size = 1
    for item in args[0]:
        if not isinstance(item, int):
            return False
        size *= item
    return size > LARGE_HOST_NUMEL


def _without_values(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    meta = torch.device("meta")

    def to_meta(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=meta)
        return value

    def to_host(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cpu")
        return value

    options = {key: to_meta(value) for key, value in kwargs.items()}
    if options.get("device") is not None or not tensors_in(args):
        options["device"] = meta
    options.pop("pin_memory", None)
    return tree_map(to_host, func(*tree_map(to_meta, args), **options))


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1
