"""The mode that lets meta tensors look like CUDA tensors.

It stands above everything else in PyTorch's Python interface: it answers questions about devices, and turns
the device that a program names into the one that its tensors really have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._device import _device_constructors

from conccl.workloads.capture.program import Program

CUDA = torch.device("cuda", 0)
META = torch.device("meta")
CPU = torch.device("cpu")


class Present(TorchFunctionMode):
    """Active while code is captured."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Answer questions about devices; send the rest on with the device called meta."""
        answer = _ANSWERS.get(func)
        if answer is not None:
            return answer(*args, **(kwargs or {}))
        default = self._program.default_device
        if default is not None and func in _device_constructors() and not (kwargs or {}).get("device"):
            kwargs = {**(kwargs or {}), "device": default}
        if kwargs:
            options = dict(kwargs)
            if func in _FROM_HOST and is_cuda(options.get("device")):
                return func(*args, **(options | {"device": CPU})).to(META)
            _rename_device(options)
        else:
            options = {}
        if func in _NAMING_DEVICES:
            args = (args[0], *(META if is_cuda(argument) else argument for argument in args[1:]))
        elif func is torch.device and args and isinstance(args[0], int):
            return torch.device("cuda", args[0])
        elif func is _PARSE_TO and args and is_cuda(args[0]):
            args = (CUDA, *args[1:])
        elif func is torch.Tensor.cuda:
            options.pop("device", None)
            return args[0].to(META, non_blocking=options.get("non_blocking", False))
        return func(*args, **options)


@contextlib.contextmanager
def presenting_backward(mode: Present, /) -> Iterator[None]:
    """Autograd's engine runs with the mode on: PyTorch leaves modes out of what ``backward`` calls."""
    autograd: Any = torch.autograd
    original = autograd._engine_run_backward

    def run(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return original(*args, **kwargs)

    checks = checkpoint._allowed_determinism_checks_to_fns
    with (
        mock.patch.object(autograd, "_engine_run_backward", run),
        mock.patch.dict(checks, {checkpoint._DEFAULT_DETERMINISM_MODE: _metadata}),
    ):
        yield


def _metadata(tensor: torch.Tensor) -> dict[str, Any]:
    """What checkpoint compares between the first run and the second, wherever tensors are."""
    return {"shape": tensor.shape, "dtype": tensor.dtype}


def is_cuda(device: Any, /) -> bool:
    """Whether this names a CUDA device; a bare number does, as in ``tensor.to(0)``."""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def _rename_device(options: dict[str, Any]) -> None:
    if "device" in options and is_cuda(options["device"]):
        options["device"] = META
    generator = options.get("generator")
    if generator is not None and (options.get("device") == META or generator.device.type == "cuda"):
        options["generator"] = None
    if options.pop("pin_memory", None):
        options["pin_memory"] = False


_FROM_HOST = frozenset({torch.tensor, torch.as_tensor, torch.asarray})
"""What makes a tensor of numbers that the host has: it is copied."""

_NAMING_DEVICES = frozenset({torch.Tensor.to, torch.Tensor.type})
"""Methods that take a device as a positional argument."""


_PARSE_TO: Any = torch._C._nn._parse_to


def _is_meta(tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return tensor.is_meta


def _shown_device(tensor: torch.Tensor) -> torch.device:
    with torch._C.DisableTorchFunction():
        return CUDA if tensor.is_meta else tensor.device


def _get_device(tensor: torch.Tensor) -> int:
    return 0 if _is_meta(tensor) else -1


def _type(tensor: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    with torch._C.DisableTorchFunction():
        if dtype is None:
            return tensor.type().replace(".meta.", ".cuda.")
    if isinstance(dtype, str):
        name = dtype.rpartition(".")[2]
        device = META if ".cuda." in dtype else CPU
        return tensor.to(device, getattr(torch, name).dtype)
    return tensor.to(dtype, *args, **kwargs)


def _to_list(tensor: torch.Tensor) -> Any:
    if not _is_meta(tensor):
        with torch._C.DisableTorchFunction():
            return tensor.tolist()
    return tensor.cpu().tolist()


def _text(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> str:
    with torch._C.DisableTorchFunction():
        if not tensor.is_meta:
            return str(torch.Tensor.__repr__(tensor, *args, **kwargs))
        return f"tensor(..., device='cuda:0', size={tuple(tensor.shape)}, dtype={tensor.dtype})"


def _formatted(tensor: torch.Tensor, form: str) -> str:
    if _is_meta(tensor) and tensor.dim() == 0:
        return format(tensor.item(), form)
    return _text(tensor) if _is_meta(tensor) else torch.Tensor.__format__(tensor, form)


def _deep_copy(tensor: torch.Tensor, memo: dict[int, Any]) -> Any:
    """A leaf's copy, as CUDA would make it: one copy kernel."""
    if not _is_meta(tensor) or type(tensor) is not torch.Tensor:
        with torch._C.DisableTorchFunction():
            return torch.Tensor.__deepcopy__(tensor, memo)
    if id(tensor) not in memo:
        with torch.no_grad():
            memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    return memo[id(tensor)]


def _new(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The old way to make a tensor of the same kind, which optimizers of sparse gradients take."""
    if tensor.layout is torch.sparse_coo and len(args) == 3:
        return torch.sparse_coo_tensor(*args, check_invariants=False)
    if _is_meta(tensor):
        if args and isinstance(args[0], list):
            return torch.tensor(args[0], dtype=tensor.dtype).to(META)
        return torch.empty(*(args or (0,)), dtype=tensor.dtype, device=META)
    with torch._C.DisableTorchFunction():
        return tensor.new(*args, **kwargs)


_ANSWERS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.device.__get__: _shown_device,
    torch.Tensor.is_cuda.__get__: _is_meta,  # type: ignore[attr-defined]
    torch.Tensor.is_meta.__get__: lambda _: False,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: lambda tensor: not _is_meta(tensor),  # type: ignore[attr-defined]
    torch.Tensor.get_device: _get_device,
    torch.Tensor.type: _type,
    torch.Tensor.new: _new,
    torch.Tensor.tolist: _to_list,
    torch.Tensor.__repr__: _text,
    torch.Tensor.__format__: _formatted,
    torch.Tensor.__deepcopy__: _deep_copy,
    torch.Tensor.pin_memory: lambda tensor, *_: tensor,
    torch.Tensor.is_pinned: lambda tensor, *_: not _is_meta(tensor),
    torch.Tensor.record_stream: lambda *_: None,
}
"""What is answered here, without PyTorch."""
