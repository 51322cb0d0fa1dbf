"""Which tensors the L2 cache may still hold, by how many bytes were touched since they were."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from conccl.workloads.capture.tensors import touched_nbytes

STEPS = 8
"""Shares are rounded to so many steps, so that equal ops stay equal."""


class Residency:
    """What was touched when, counted in bytes."""

    def __init__(self, *, l2_nbytes: int) -> None:
        self._capacity = l2_nbytes / 2  # a line may lie in both halves of the cache
        self._touched = 0
        self._last: dict[int, int] = {}
        """Storage -> bytes touched in all when it was last."""

    def share(self, tensors: Iterable[torch.Tensor], /) -> float:
        """Of what a kernel reads of these tensors, the share that L2 holds.

        A tensor is there if it and all that was touched since fit into half of the capacity, and gone if they
        are more than one and a half of it.
        """
        held = nbytes = 0.0
        for tensor in tensors:
            size = touched_nbytes(tensor)
            nbytes += size
            last = self._last.get(tensor.untyped_storage()._cdata)
            if last is not None:
                since = self._touched - last + size
                held += size * min(max(1.5 - since / self._capacity, 0.0), 1.0)
        return int(STEPS * held / nbytes) / STEPS if nbytes else 0.0

    def touch(self, tensors: Iterable[torch.Tensor], /) -> None:
        """A kernel reads or writes these tensors."""
        for tensor in tensors:
            self._touched += touched_nbytes(tensor)
            self._last[tensor.untyped_storage()._cdata] = self._touched
