"""The mode that lets meta tensors look like CUDA tensors, and decides what PyTorch decides by device.

It stands above autograd: what it replaces (attention, recurrence, dropout, batch norm) still gets its
gradient from PyTorch's own formulas, which call the CUDA ops' backward kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from conccl.workloads.capture import autocast, choices
from conccl.workloads.capture.program import Program
from conccl.workloads.capture.tensors import is_on_device

CUDA = torch.device("cuda", 0)
META = torch.device("meta")


class Present(TorchFunctionMode):
    """Active while code is captured, above everything else."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Answer questions about devices; send the rest on with the device called meta."""
        options = dict(kwargs or {})
        answer = _ANSWERS.get(func)
        if answer is not None:
            return answer(*args, **options)
        reader = _READERS.get(func)
        if reader is not None and args and _is_meta(args[0]):
            return reader(self._program, *args, **options)
        args, options = _with_meta_device(func, args, options)
        args, options = autocast.cast_arguments(func, args, options)
        chosen = choices.CHOICES.get(getattr(func, "__name__", ""))
        if chosen is not None and any(_is_meta(value) for value in (*args, *options.values())):
            result = chosen(self._program, *args, **options)
            if result is not NotImplemented:
                return result
        return func(*args, **options)


def is_cuda(device: Any, /) -> bool:
    """Whether this names a CUDA device; a bare number does, as in ``tensor.to(0)``."""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def _is_meta(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and _device(value).type == "meta"


def _device(tensor: torch.Tensor) -> torch.device:
    with torch._C.DisableTorchFunction():
        return tensor.device


def _shown_device(tensor: torch.Tensor) -> torch.device:
    device = _device(tensor)
    return CUDA if device.type == "meta" else device


def _get_device(tensor: torch.Tensor) -> int:
    return 0 if _is_meta(tensor) else -1


def _storage_type(tensor: torch.Tensor) -> bool:
    return _is_meta(tensor)


_ANSWERS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.device.__get__: _shown_device,
    torch.Tensor.is_cuda.__get__: _is_meta,
    torch.Tensor.is_meta.__get__: lambda _: False,
    torch.Tensor.is_cpu.__get__: lambda tensor: not _is_meta(tensor),
    torch.Tensor.get_device: _get_device,
}
"""Questions about where a tensor is."""


def _with_meta_device(func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    name = getattr(func, "__name__", "")
    if "device" in options and is_cuda(options["device"]):
        options["device"] = META
    if options.get("generator") is not None and options.get("device") == META:
        options["generator"] = None
    if options.pop("pin_memory", None):
        options["pin_memory"] = False
    if name == "cuda":
        options.pop("device", None)
        return (args[0], META), options | ({} if func is torch.Tensor.to else {})
    if name in ("to", "new_tensor", "type"):
        args = (args[0], *(META if is_cuda(arg) and _names_device(name, arg) else arg for arg in args[1:]))
    return args, options


def _names_device(name: str, argument: Any) -> bool:
    return name == "to" or isinstance(argument, torch.device)


def _unknown_number(program: Program, tensor: torch.Tensor) -> Any:
    """A value that only the GPU would know: 1 for numbers, False for conditions."""
    torch.ops.aten._local_scalar_dense.default  # noqa: B018 (named here: the copy that it costs)
    from conccl.workloads.capture.kernels.copies import scalar_read

    program.launch("item", [scalar_read(tensor)], waits=True)
    program.warn("A value computed on the GPU decided what ran: it was taken as 1 (numbers) or false (conditions).")
    if tensor.dtype == torch.bool:
        return False
    return 1.0 if tensor.dtype.is_floating_point else 1


def _to_bool(program: Program, tensor: torch.Tensor) -> bool:
    return bool(_unknown_number(program, tensor))


def _to_int(program: Program, tensor: torch.Tensor) -> int:
    return int(_unknown_number(program, tensor))


def _to_float(program: Program, tensor: torch.Tensor) -> float:
    return float(_unknown_number(program, tensor))


def _to_host(program: Program, tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """A host tensor of ones: the values are not known."""
    host = torch.ones(tensor.shape, dtype=tensor.dtype, device="cpu")
    from conccl.workloads.capture.kernels.copies import host_read

    program.launch("copy to host", [host_read(tensor)], waits=True)
    return host


def _to_list(program: Program, tensor: torch.Tensor) -> Any:
    return _to_host(program, tensor).tolist()


def _to_numpy(program: Program, tensor: torch.Tensor, *_: Any, **__: Any) -> Any:
    return _to_host(program, tensor).numpy()


def _text(program: Program, tensor: torch.Tensor, *_: Any, **__: Any) -> str:
    del program
    return f"tensor(..., device='cuda:0', size={tuple(tensor.shape)}, dtype={tensor.dtype})"


_READERS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.item: _unknown_number,
    torch.Tensor.__bool__: _to_bool,
    torch.Tensor.__int__: _to_int,
    torch.Tensor.__index__: _to_int,
    torch.Tensor.__float__: _to_float,
    torch.Tensor.tolist: _to_list,
    torch.Tensor.cpu: _to_host,
    torch.Tensor.numpy: _to_numpy,
    torch.Tensor.__repr__: _text,
    torch.Tensor.__format__: _text,
}
"""Ways in which a program reads a device tensor's values."""


def on_device(value: Any, /) -> bool:
    """Whether the program believes this tensor to be on the GPU."""
    return is_on_device(value)
