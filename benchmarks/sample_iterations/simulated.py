"""The three networks as targets of `conccl sample iterations --replay`: their lengths are arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import networks


def speech(frames: str) -> Callable[[], None]:
    """32 utterances of so many frames."""
    return _bound("speech", int(frames))


def translation(source: str, target: str) -> Callable[[], None]:
    """128 sentence pairs of so many tokens."""
    return _bound("translation", int(source), int(target))


def transformer(tokens: str) -> Callable[[], None]:
    """8 requests of so many tokens."""
    return _bound("transformer", int(tokens))


def _bound(name: str, *length: int) -> Callable[[], None]:
    step = networks.NETWORKS[name]("cuda")
    return lambda: step(length)
