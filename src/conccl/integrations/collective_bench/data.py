"""Random elements that every rank can make for all, and what a collective must make of them.

Values are small whole numbers, so that every order of a sum gives the same bits and each element can be
compared exactly (averages, whose quotients are rounded, within two units in the last place).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from conccl.core.errors import UnknownNameError

DTYPES: dict[str, torch.dtype] = {
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
    "half": torch.float16,
    "float": torch.float32,
    "double": torch.float64,
    "bfloat16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
}
"""Element types by nccl-tests' names."""

_PIECE = 1 << 20
"""Elements made and compared at a time."""
_MOST_EXACT = {torch.float8_e4m3fn: 16, torch.float8_e5m2: 8, torch.int8: 127, torch.uint8: 255}
"""The largest whole number below which all are exact, where it is small."""


def dtype_of(name: str, /) -> torch.dtype:
    """An element type by nccl-tests' name."""
    if name not in DTYPES:
        raise UnknownNameError(kind="data type", name=name, known=DTYPES)
    return DTYPES[name]


class RandomData:
    """The inputs of all ranks in one run."""

    def __init__(self, *, seed: int, dtype: torch.dtype, redop: str, ranks: int) -> None:
        self._seed = seed
        self._dtype = dtype
        self._redop = redop
        self._ranks = ranks
        self._high = self._highest()

    def _highest(self) -> int:
        """Values are below this: no sum or product of all ranks' exceeds what is exact."""
        if self._redop == "prod":
            return 3 if self._ranks <= 3 else 2
        return max(2, min(16, _MOST_EXACT.get(self._dtype, 127) // self._ranks + 1))

    def fill(self, rank: int, out: torch.Tensor, /, *, stream: int = 0) -> None:
        """A rank's input, or (``stream`` 1) what is in a buffer before."""
        for start, stop in _pieces(out.numel()):
            out[start:stop] = self.piece(rank, start, stop, stream=stream).to(out.device)

    def piece(self, rank: int, start: int, stop: int, /, *, stream: int = 0) -> torch.Tensor:
        """Elements [start, stop) of a rank's input."""
        made = []
        while start < stop:
            number, inside = divmod(start, _PIECE)
            end = min(stop, (number + 1) * _PIECE)
            source = torch.Generator().manual_seed(hash((self._seed, rank, number, stream)) & 0x7FFFFFFF)
            values = torch.randint(0, self._high, (inside + end - start,), generator=source)
            made.append(values[inside:].to(self._dtype))
            start = end
        return torch.cat(made) if made else torch.empty(0, dtype=self._dtype)

    def reduced(self, start: int, stop: int, /) -> torch.Tensor:
        """Elements [start, stop) of all ranks' inputs, reduced."""
        total = self.piece(0, start, stop).double()
        for rank in range(1, self._ranks):
            other = self.piece(rank, start, stop).double()
            match self._redop:
                case "sum" | "avg":
                    total += other
                case "prod":
                    total *= other
                case "min":
                    total = torch.minimum(total, other)
                case _:
                    total = torch.maximum(total, other)
        if self._redop == "avg":
            total /= self._ranks
        return total.to(self._dtype)

    def wrong(self, got: torch.Tensor, /, *, rank: int | None, start: int = 0) -> int:
        """Elements that are not those of a rank's input (None: of the reduction) from ``start`` on."""
        count = 0
        for first, last in _pieces(got.numel()):
            want = (
                self.reduced(start + first, start + last)
                if rank is None
                else self.piece(rank, start + first, start + last)
            )
            count += self._different(got[first:last].cpu(), want, exactly=rank is not None)
        return count

    def _different(self, got: torch.Tensor, want: torch.Tensor, *, exactly: bool) -> int:
        one, other = got.double(), want.double()
        if exactly or self._redop != "avg" or not self._dtype.is_floating_point:
            return int((one != other).sum())
        near = 2 * torch.finfo(self._dtype).eps * other.abs()
        return int((~((one - other).abs() <= near)).sum())


def _pieces(numel: int) -> Iterator[tuple[int, int]]:
    for start in range(0, numel, _PIECE):
        yield start, min(start + _PIECE, numel)
