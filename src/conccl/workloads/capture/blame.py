"""Which line of the user's program is at work: for warnings."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

_OURS = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)


def calling_line() -> str:
    """As in "at model.py:12": the innermost frame outside of PyTorch and of this package."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_OURS, _TORCH, "<")):
            return f"at {Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "by PyTorch itself"
