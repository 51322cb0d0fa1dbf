"""The function of a file that a user names: ``file.py:function``, called with strings on the GPU."""

from __future__ import annotations

import functools
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from conccl.core.errors import ConcclError, InputError, UnknownNameError
from conccl.core.hardware import Device
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Op
from conccl.workloads.capture.capture import capture_step
from conccl.workloads.capture.devices import is_mismatch
from conccl.workloads.captured import Captured

Builder = Callable[[], Callable[[], Any]]
"""Builds model and input and returns a step."""


def capture_target(
    target: str, arguments: Sequence[str], /, *, device: Device, ranks: int = 1, rank: int = 0
) -> Captured:
    """Capture a step of what the function returns, as one of so many ranks runs it.

    The function builds model and input on the current device and returns a call without arguments. Raises
    `InputError` where file or function are missing, where user code raises (with its traceback), and where
    nothing can be called.
    """
    path, _, name = target.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{target}: there is no file {path!r}. Give file.py:function.")
    sys.path.insert(0, str(file.resolve().parent))
    try:
        capture = functools.partial(capture_step, device=device, ranks=ranks, rank=rank)
        return _captured(lambda: _built(file, name, arguments, target=target), capture)
    except ConcclError:
        raise
    except Exception as error:
        raise InputError(f"{target} raised an error:\n\n{_traceback(error)}") from error
    finally:
        sys.path.remove(str(file.resolve().parent))


def capture_job(
    target: str, arguments: Sequence[str], /, *, device: Device, ranks: int
) -> tuple[Captured, ...]:
    """Captures of ranks that may differ: the first; where it sends or receives also a middle and the last."""
    first = capture_target(target, arguments, device=device, ranks=ranks)
    if not any(_is_pairwise(call.kernel.op) for call in first.kernels):
        return (first,)
    warned = replace(first, warnings=(*first.warnings, _PAIRS))
    others = sorted({ranks // 2, ranks - 1} - {0})
    return (
        warned,
        *(capture_target(target, arguments, device=device, ranks=ranks, rank=rank) for rank in others),
    )


def _is_pairwise(op: Op) -> bool:
    return isinstance(op, Collective) and op.kind in (CollectiveKind.SEND, CollectiveKind.RECV)


_PAIRS = (
    "Ranks send to each other. What a rank waits for until another one has computed it (a pipeline's bubble)"
    " is left out."
)


def _captured(build: Builder, capture: Callable[[Builder], Captured], /) -> Captured:
    """A step that names no device for its tensors is run with the GPU as the current one, if need be."""
    try:
        return capture(build)
    except Exception as error:
        if not is_mismatch(error):
            raise

    def build_on_gpu() -> Callable[[], Any]:
        step = build()

        def on_gpu() -> Any:
            with torch.device("cuda"):
                return step()

        return on_gpu

    captured = capture(build_on_gpu)
    return replace(captured, warnings=(*captured.warnings, _ON_GPU))


_ON_GPU = (
    "The step puts tensors of the host beside tensors of the GPU, so it was run with the GPU as PyTorch's"
    " current device, as the function that builds it is."
)


def _built(file: Path, name: str, arguments: Sequence[str], *, target: str) -> Callable[[], Any]:
    module = _module(file)
    function = getattr(module, name, None)
    if function is None:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UnknownNameError(kind=f"function of {file.name}", name=name, known=known)
    with torch.device("cuda"):
        step = function(*arguments)
    if not callable(step):
        raise InputError(
            f"{target} returned {type(step).__name__}; it must return a function without arguments that runs"
            " one step."
        )
    return step  # type: ignore[no-any-return]


def _module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file} is no Python file. Give file.py:function.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _traceback(error: Exception) -> str:
    """The user's own frames: those of this package and of PyTorch say nothing to them."""
    ours, theirs = str(Path(__file__).parents[2]), str(Path(torch.__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, theirs, "<"))
    ]
    said = "".join(traceback.format_exception_only(error))
    for ours_, theirs_ in _MEANT:
        said = said.replace(ours_, theirs_)
    return ("".join(traceback.format_list(frames)) + said).rstrip()


_MEANT = (
    ("device meta", "device cuda:0"),
    ("device='meta'", "device='cuda:0'"),
    ("(self) meta", "(self) cuda:0"),
    ("torch.Meta", "torch.cuda."),
    ("Meta", "CUDA"),
)
"""How tensors are shown here, and what the program takes them for."""
