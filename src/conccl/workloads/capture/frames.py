"""Counts the Python functions that a program enters: what its own code costs beside PyTorch's ops."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from conccl.workloads.capture.program import Program

_OURS = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)
_NOT_ON_A_GPU = (
    "overrides.py", "_ops.py", "utils/_python_dispatch.py", "utils/_device.py", "multiprocessing/",
    "library.py", "_compile.py", "_library/", "_subclasses/", "_meta_registrations.py", "_prims", "_refs/",
    "_decomp/",
)  # fmt: skip

_ONLY_HERE = (_OURS, *(f"{_TORCH}/{name}" for name in _NOT_ON_A_GPU), "<")
"""Files whose functions run because code is captured, or at moments that the garbage collector chooses."""

_ANY_TIME = ("weakref.py", "_weakrefset.py", "contextlib.py", "functools.py", "enum.py")


@contextlib.contextmanager
def counting_frames(program: Program, /) -> Iterator[None]:
    """Count into ``program.python_calls`` meanwhile; a profiler that someone has set is left alone."""
    if sys.getprofile() is not None:
        yield
        return
    counted: dict[CodeType, bool] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or program.depth:
            return
        code = frame.f_code
        if code not in counted:
            counted[code] = _is_the_programs(code.co_filename)
        if counted[code] and not _is_ours(frame.f_back):
            program.python_calls += 1

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def _is_ours(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_OURS)


def _is_the_programs(path: str) -> bool:
    return not path.startswith(_ONLY_HERE) and Path(path).name not in _ANY_TIME
