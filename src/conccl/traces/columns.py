"""Columns that grow batch by batch, and the tables whose entries they number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.int32]

_INT64 = np.iinfo(np.int64)


class Table(dict[Any, int]):
    """Values by the number that stands for each: ``table[value]`` gives a new value the next number."""

    def __missing__(self, value: Any) -> int:
        number = len(self)
        self[value] = number
        return number

    def numbers(self, values: Iterable[Any], /) -> Numbers:
        """The number of each value; what cannot be a key (a list, say) is taken as its text."""
        values = list(values)
        try:
            return np.fromiter(map(self.__getitem__, values), dtype=np.int32, count=len(values))
        except TypeError:
            return np.array([self[_hashable(value)] for value in values], dtype=np.int32)


def _hashable(value: Any) -> Any:
    if isinstance(value, tuple):
        items = [_hashable(item) for item in value]
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


class Columns:
    """Parallel arrays that grow by batches."""

    def __init__(self) -> None:
        self._batches: dict[str, list[Array]] = {}

    def append(self, **arrays: Array) -> None:
        """One batch: equally long arrays."""
        for name, array in arrays.items():
            self._batches.setdefault(name, []).append(array)

    def replace(self, name: str, array: Array, /) -> None:
        """Put another column in the place of this one."""
        self._batches[name] = [array]

    def array(self, name: str, /, *, dtype: npt.DTypeLike) -> Array:
        """The whole column."""
        batches = self._batches.get(name)
        return np.concatenate(batches).astype(dtype, copy=False) if batches else np.empty(0, dtype=dtype)


def integers(values: Sequence[Any], /, *, default: int) -> npt.NDArray[np.int64]:
    """The values as integers; the default for what is none."""
    try:
        column: npt.NDArray[np.int64] = np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        column = np.empty(0, dtype=np.int64)
    if column.shape == (len(values),):  # lists in place of numbers make it a matrix, or fail
        return column
    return np.array([_integer(value, default) for value in values], dtype=np.int64)


def _integer(value: Any, default: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return default
    return number if _INT64.min <= number <= _INT64.max else default


def renumbered(numbers: Numbers, /) -> tuple[list[int], Numbers]:
    """The numbers that occur, and the entries as indices into them; -1 stays -1."""
    used = np.unique(numbers[numbers >= 0])
    return used.tolist(), np.where(numbers >= 0, np.searchsorted(used, numbers), -1).astype(np.int32)


def grouped(*keys: Array) -> npt.NDArray[np.intp]:
    """A number from 0 for each row of these columns, equal where the rows are, in sorted order."""
    order = np.lexsort(keys[::-1])
    changes = np.zeros(len(order), dtype=np.bool_)
    for key in keys:
        ordered = key[order]
        changes[1:] |= ordered[1:] != ordered[:-1]
    groups = np.empty(len(order), dtype=np.intp)
    groups[order] = np.cumsum(changes)
    return groups
