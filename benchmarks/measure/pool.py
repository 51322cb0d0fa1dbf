"""Random data that rows take their operands from, so that no two calls in a row touch the same memory.

Buffers are filled once; a tensor is a view of the next free window, which costs no allocation and no filling.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

ALIGNMENT = 512
"""Windows begin at multiples of this many bytes, as PyTorch's allocator places tensors."""

PINNED_NBYTES = 1 << 29


class Pool:
    """Read-only random windows and write-only output windows on one device."""

    def __init__(self, *, device: str, nbytes: int) -> None:
        self.device = device
        self._nbytes = nbytes
        self._buffers: dict[object, Tensor] = {}
        self._cursors: dict[object, int] = {}

    def take(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """A contiguous tensor of normally distributed numbers; do not write to it."""
        return self._window(("in", dtype), shape, dtype)

    def out(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """A contiguous tensor to write to; what it holds is left from others."""
        return self._window(("out", dtype), shape, dtype)

    def own(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """A contiguous random tensor that nobody else sees: for what is updated in place."""
        return self.take(*shape, dtype=dtype).clone()

    def ints(self, *shape: int, high: int) -> Tensor:
        """Random int64 in [0, high)."""
        return torch.randint(high, shape, device=self.device)

    def pinned(self, nbytes: int, /) -> Tensor:
        """A window of pinned host memory, uint8 (plain memory where there is no GPU)."""
        if "pinned" not in self._buffers:
            size = PINNED_NBYTES if self.device == "cuda" else 1 << 24
            filled = torch.randint(255, (size,), dtype=torch.uint8, device=self.device).cpu()
            self._buffers["pinned"] = filled.pin_memory() if self.device == "cuda" else filled
        return self._next("pinned", nbytes)

    def _window(self, key: tuple[str, torch.dtype], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if key not in self._buffers:
            self._buffers[key] = self._fill(key[0], dtype)
        return self._next(key, math.prod(shape)).view(shape)

    def _next(self, key: object, numel: int) -> Tensor:
        buffer = self._buffers[key]
        if numel > buffer.numel():
            raise ValueError(f"{numel} elements were asked of a buffer of {buffer.numel()}.")
        step = ALIGNMENT // buffer.element_size()
        start = self._cursors.get(key, 0)
        if start + numel > buffer.numel():
            start = 0
        self._cursors[key] = start + -(-numel // step) * step
        return buffer[start : start + numel]

    def _fill(self, kind: str, dtype: torch.dtype) -> Tensor:
        numel = self._nbytes // dtype.itemsize
        if kind == "out":
            return torch.empty(numel, dtype=dtype, device=self.device)
        if dtype.itemsize == 1:
            return torch.cat(
                [
                    torch.randn(numel // 8, device=self.device, dtype=torch.bfloat16).to(dtype)
                    for _ in range(8)
                ]
            )
        return torch.randn(numel, dtype=dtype, device=self.device)
