"""Columns that grow batch by batch, and the tables whose entries they number."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_INT64 = np.iinfo(np.int64)


class Table:
    """Values by the number that stands for each: interning."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, value: Hashable, /) -> int:
        """The value's number, a new one where it is new."""
        return self._numbers.setdefault(value, len(self._numbers))

    @property
    def values(self) -> list[Any]:
        """The values in the order of their numbers."""
        return list(self._numbers)


class Columns:
    """Parallel arrays that grow by batches."""

    def __init__(self) -> None:
        self._batches: dict[str, list[Array]] = {}

    def append(self, **arrays: Array) -> None:
        """One batch: equally long arrays."""
        for name, array in arrays.items():
            self._batches.setdefault(name, []).append(array)

    def array(self, name: str, /, *, dtype: npt.DTypeLike) -> Array:
        """The whole column."""
        batches = self._batches.get(name)
        return np.concatenate(batches).astype(dtype, copy=False) if batches else np.empty(0, dtype=dtype)


def integers(values: Sequence[Any], /, *, default: int) -> npt.NDArray[np.int64]:
    """The values as integers; the default for what is none."""
    try:
        return np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(value, default) for value in values], dtype=np.int64)


def _integer(value: Any, default: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return default
    return number if _INT64.min <= number <= _INT64.max else default


def renumbered(numbers: npt.NDArray[np.int32], /) -> tuple[list[int], npt.NDArray[np.int32]]:
    """The numbers that occur, and the entries as indices into them; -1 stays -1."""
    used = np.unique(numbers[numbers >= 0])
    return used.tolist(), np.where(numbers >= 0, np.searchsorted(used, numbers), -1).astype(np.int32)
