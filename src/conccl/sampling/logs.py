"""Logs of iterations, their sequence lengths and statistics: CSV, JSON lines, Parquet, NumPy."""

from __future__ import annotations

import csv
import json
import math
import warnings
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from conccl.core.errors import InputError, MissingExtraError, UnknownNameError
from conccl.core.files import regular

Values = npt.NDArray[np.float64]
Lengths = npt.NDArray[np.int64]

LARGEST = 1e100
"""Of a number in a table: sums and squares of larger ones overflow."""

LARGEST_WHOLE = 1 << 53
"""Up to here a double holds every whole number."""

LENGTH_COLUMNS = "length, or several columns whose names begin with length"


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctLengths:
    """Each length of a run once, in ascending order."""

    length: Lengths
    """[distinct lengths, dimensions]."""
    count: Values
    """Iterations that have it."""
    iteration: Lengths
    """The first of them."""
    statistics: Mapping[str, Values]
    """Mean of each statistic over them."""
    group: npt.NDArray[np.intp]
    """Of each iteration, which of these lengths it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationLog:
    """A run: its iterations in order, the length of each, and statistics that are known by length."""

    iteration: Lengths
    length: Lengths
    """[iterations, dimensions]."""
    statistics: Mapping[str, Values] = field(default_factory=dict)
    """One value an iteration; NaN where it is not known."""
    names: tuple[str, ...] = ("length",)
    """Of the dimensions of a length."""
    _known: list[DistinctLengths] = field(init=False, repr=False, compare=False, default_factory=list)
    """Found once: a log may have millions of rows."""

    def distinct(self) -> DistinctLengths:
        """Each length once, with its iterations and the means of its statistics."""
        if not self._known:
            self._known.append(self._distinct())
        return self._known[0]

    def _distinct(self) -> DistinctLengths:
        _, first, group, count = np.unique(
            _keys(self.length), return_index=True, return_inverse=True, return_counts=True
        )
        group = group.reshape(-1)
        means = {name: np.bincount(group, weights=values) / count for name, values in self.statistics.items()}
        return DistinctLengths(
            length=self.length[first],
            count=count.astype(np.float64),
            iteration=self.iteration[first],
            statistics=means,
            group=group,
        )


def _keys(length: Lengths) -> Lengths:
    """One number for each row, in the rows' order; lengths that leave no room in 63 bits are ranked first."""
    if length.shape[1] == 1:
        return length[:, 0]
    low = length.min(axis=0)
    span = [int(each) + 1 for each in length.max(axis=0) - low]
    if math.prod(span) >= 1 << 63:
        return np.unique(length, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    keys = np.zeros(len(length), dtype=np.int64)
    for column, size in enumerate(span):
        keys = keys * size + (length[:, column] - low[column])
    return keys


def read_log(path: Path, /, *, lengths: Sequence[str] = ()) -> IterationLog:
    """The iterations of a log file; its other numeric columns are statistics of each iteration.

    ``lengths`` are the columns that make a length, where their names do not say it.
    """
    columns = read_columns(path)
    names = named_lengths(columns, lengths, path=path) if lengths else length_names(columns, path=path)
    length = np.stack([whole_numbers(columns[name], path=path, column=name) for name in names], axis=1)
    if not len(length):
        raise InputError(f"{path} has no iterations. Give a log with one row an iteration.")
    if (length < 1).any():
        row = int(np.argmax((length < 1).any(axis=1)))
        raise InputError(
            f"{path} row {row + 1}: a length of {length[row].min()}. A length is a whole number above 0."
        )
    iteration = (
        whole_numbers(columns["iteration"], path=path, column="iteration")
        if "iteration" in columns
        else np.arange(len(length), dtype=np.int64)
    )
    _require_distinct(iteration, path=path)
    order = np.argsort(iteration, kind="stable")
    statistics = {
        name: values[order]
        for name, values in (
            (n, numbers(c, path=path, column=n))
            for n, c in columns.items()
            if n not in names and _has_numbers(c)  # others are notes
        )
        if name != "iteration"
    }
    return IterationLog(
        iteration=iteration[order], length=length[order], statistics=statistics, names=tuple(names)
    )


def with_statistics(log: IterationLog, path: Path, /, *, lengths: Sequence[str] = ()) -> IterationLog:
    """The log with the statistics that a file gives by length: one row a length, one column a statistic."""
    columns = read_columns(path)
    is_named = bool(lengths) and set(lengths) <= columns.keys()
    names = tuple(lengths) if is_named else length_names(columns, path=path)
    if len(names) != log.length.shape[1]:
        raise InputError(
            f"{path} has {len(names)} length columns, the log {log.length.shape[1]}. Give as many."
        )
    keys = np.stack([whole_numbers(columns[name], path=path, column=name) for name in names], axis=1)
    unique, group = np.unique(keys, axis=0, return_inverse=True)
    rows = _rows_of(log.length, unique, path=path)
    statistics: dict[str, Values] = dict(log.statistics)
    for name, cells in columns.items():
        if name in names or name == "iteration":
            continue
        values = numbers(cells, path=path, column=name)
        if (values < 0).any():
            row = int(np.argmax(values < 0))
            raise InputError(
                f"{path} row {row + 1}: {name} is {values[row]:g}. A statistic is never negative."
            )
        mean = np.bincount(group.reshape(-1), weights=values) / np.bincount(group.reshape(-1))
        statistics[name] = mean[rows]
    if not statistics:
        raise InputError(f"{path} has no statistic. Give at least one column beside {', '.join(names)}.")
    return replace(log, statistics=statistics)


def _rows_of(length: Lengths, known: Lengths, *, path: Path) -> npt.NDArray[np.intp]:
    """For each iteration the row of `known` that has its length."""
    index = {tuple(row): number for number, row in enumerate(known.tolist())}
    distinct = IterationLog(iteration=np.arange(len(length)), length=length).distinct()
    lengths = [tuple(row) for row in distinct.length.tolist()]
    missing = [row for row in lengths if row not in index]
    if missing:
        shown = ", ".join("x".join(map(str, row)) for row in missing[:5]) + (
            " ..." if len(missing) > 5 else ""
        )
        raise InputError(
            f"{path} has no row for {len(missing)} of the log's lengths: {shown}."
            " Measure one iteration of each length."
        )
    return np.array([index[row] for row in lengths], dtype=np.intp)[distinct.group]


def _require_distinct(iteration: Lengths, *, path: Path) -> None:
    unique, counts = np.unique(iteration, return_counts=True)
    if (counts > 1).any():
        raise InputError(
            f"{path}: iteration {unique[counts > 1][0]} stands {counts.max()} times. Each has one row."
        )


def length_names(columns: Mapping[str, Any], /, *, path: Path) -> tuple[str, ...]:
    """The columns that make a length."""
    names = tuple(name for name in columns if name == "length" or name.startswith(("length_", "length.")))
    if not names:
        raise InputError(
            f"{path} has no length column (it has {', '.join(columns) or 'none'}). Name it {LENGTH_COLUMNS}."
        )
    return names


def named_lengths(columns: Mapping[str, Any], names: Sequence[str], /, *, path: Path) -> tuple[str, ...]:
    """The columns that a user named as lengths."""
    for name in names:
        if name not in columns:
            raise UnknownNameError(kind=f"column of {path}", name=name, known=columns)
    if len(set(names)) < len(names):
        raise InputError(f"{', '.join(names)}: a length column stands there twice. Name each once.")
    return tuple(names)


def read_columns(path: Path, /) -> dict[str, Sequence[Any]]:
    """The columns of a table file by name."""
    readers = {
        ".csv": _read_csv,
        ".jsonl": _read_json_lines,
        ".ndjson": _read_json_lines,
        ".parquet": _read_parquet,
        ".npz": _read_numpy,
        ".npy": _read_numpy,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: {path.suffix or 'no ending'} is not read. Give {', '.join(readers)}.")
    try:
        columns = reader(regular(path))
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}. Give a file that you may read."
        ) from error
    except (ValueError, TypeError, RecursionError, csv.Error, zipfile.BadZipFile) as error:
        problem = "no NumPy file, or one of Python objects" if "pickle" in str(error) else error
        raise InputError(f"{path} is not a table of the kind its name says ({problem}).") from error
    if len({len(cells) for cells in columns.values()}) > 1:
        sizes = ", ".join(f"{name} {len(cells)}" for name, cells in columns.items())
        raise InputError(f"{path} has columns of different lengths ({sizes}). Give each as many rows.")
    return columns


def _read_csv(path: Path) -> dict[str, Sequence[Any]]:
    """Columns of numbers as arrays, at once; where any cell is none, all as text."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        separator = next((mark for mark in ",;\t" if mark in first), ",")
        header = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
        if not any(header):
            raise InputError(f"{path} is empty. Give a header line and one row an iteration.")
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise InputError(f"{path} has several columns {twice[0]!r}. Name each differently.")
        begin = file.tell()
        numeric = _read_numeric(file, separator, columns=len(header))
        if numeric is not None:
            return {name: numeric[:, index] for index, name in enumerate(header)}  # type: ignore[misc]
        file.seek(begin)
        body = [row for row in csv.reader(file, delimiter=separator) if row]
    for number, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise InputError(f"{path} line {number} has {len(row)} cells; the header has {len(header)}.")
    return {name: [row[index] for row in body] for index, name in enumerate(header)}


def _read_numeric(file: TextIO, separator: str, *, columns: int) -> Values | None:
    """All rows as numbers; None where a cell is none, or rows differ in length."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a file without rows
        try:
            table = np.loadtxt(file, delimiter=separator, ndmin=2, comments=None, quotechar='"')
        except ValueError:
            return None
    return table if table.shape[1] == columns and len(table) else None


def _read_json_lines(path: Path) -> dict[str, Sequence[Any]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path} must hold one JSON object a line, and at least one.")
    names = list(rows[0])
    for number, row in enumerate(rows, start=1):
        if set(row) != set(names):
            raise InputError(
                f"{path} line {number} has the keys {', '.join(row)}; the first line {', '.join(names)}."
            )
    return {name: [row[name] for row in rows] for name in names}


def _read_parquet(path: Path) -> dict[str, Sequence[Any]]:
    try:
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError(module="pyarrow", extra="parquet") from None
    table = parquet.read_table(path)
    return {name: _plain(table[name].to_numpy()) for name in table.column_names}


def _read_numpy(path: Path) -> dict[str, Sequence[Any]]:
    with path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            return {name: _plain(loaded[name]) for name in loaded.files}
    if loaded.dtype.names:
        return {name: _plain(loaded[name]) for name in loaded.dtype.names}
    if not loaded.size:
        raise InputError(f"{path} has no iterations. Give a log with one row an iteration.")
    table = loaded.reshape(len(loaded), -1)
    names = ["length"] if table.shape[1] == 1 else [f"length_{index}" for index in range(table.shape[1])]
    return {name: _plain(table[:, index]) for index, name in enumerate(names)}


def _plain(cells: npt.NDArray[Any]) -> Sequence[Any]:
    """Whole and real numbers as they are, everything else as Python objects."""
    if cells.ndim == 1 and cells.dtype.kind in "iuf":
        return cells.astype(np.float64)  # type: ignore[return-value]
    return cells.tolist()  # type: ignore[no-any-return]


def numbers(cells: Iterable[Any], /, *, path: Path, column: str) -> Values:
    """Finite numbers; the row that is none is named."""
    if isinstance(cells, np.ndarray):
        values: Values = cells
    else:
        values = np.array([_number(cell, path, row, column) for row, cell in enumerate(cells, start=1)])
    good = np.abs(values) <= LARGEST
    if not good.all():
        row = int(np.argmin(good))
        raise InputError(
            f"{path} row {row + 1}: {column} is {values[row]}. It must be finite, {LARGEST:g} at most."
        )
    return values


def _number(cell: Any, path: Path, row: int, column: str) -> float:
    if not _is_number(cell):
        raise InputError(f"{path} row {row}: {column} is {cell!r}. It must be a number.")
    return float(cell)


def _is_number(cell: Any) -> bool:
    """What a table of numbers has: no booleans, and none of the underscores that Python allows."""
    if isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell):
        return False
    try:
        float(cell)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _has_numbers(cells: Iterable[Any]) -> bool:
    return isinstance(cells, np.ndarray) or any(map(_is_number, cells))


def whole_numbers(cells: Iterable[Any], /, *, path: Path, column: str) -> Lengths:
    """Whole numbers; the row that is none is named."""
    values = numbers(cells, path=path, column=column)
    if (values != np.round(values)).any():
        row = int(np.argmax(values != np.round(values)))
        raise InputError(f"{path} row {row + 1}: {column} is {values[row]:g}. It must be a whole number.")
    if (np.abs(values) > LARGEST_WHOLE).any():
        row = int(np.argmax(np.abs(values) > LARGEST_WHOLE))
        raise InputError(f"{path} row {row + 1}: {column} is {values[row]:g}. It must be below 2^53.")
    return values.astype(np.int64)
