"""The function of a file that a user names: ``file.py:function``, called with strings on the GPU."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from conccl.core.errors import ConcclError, InputError, UnknownNameError
from conccl.core.hardware import Device
from conccl.workloads.capture.capture import capture_step
from conccl.workloads.captured import Captured


def capture_target(target: str, arguments: Sequence[str], /, *, device: Device) -> Captured:
    """Capture a step of what the function returns.

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
        return capture_step(lambda: _built(file, name, arguments, target=target), device=device)
    except ConcclError:
        raise
    except Exception as error:
        raise InputError(f"{target} raised an error:\n\n{_traceback(error)}") from error
    finally:
        sys.path.remove(str(file.resolve().parent))


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
    lines = traceback.format_list(frames) + traceback.format_exception_only(error)
    return "".join(lines).rstrip()
