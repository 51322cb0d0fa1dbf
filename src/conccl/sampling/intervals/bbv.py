"""Basic-block vectors in the text format of valgrind's exp-bbv and of SimPoint.

A line for each interval: ``T:block:count :block:count ...``, where a count is executions times the block's
instructions. Comments begin with #.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import sparse

from conccl.core.errors import InputError, OutputError

_REMEDY = "Was the profiling interrupted? Profile the run again."


def read_bbv(path: Path, /) -> sparse.csr_array:
    """[intervals, blocks] counts; column b is the block with number b + 1. Reads .gz too.

    A file that ends within a line, has no interval, or holds anything else is an `InputError` that names the
    line.
    """
    blocks: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    counts: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    for number, line in _lines(path):
        pairs = _parse(line, path=path, number=number)
        blocks.append(pairs[:, 0])
        counts.append(pairs[:, 1])
    if not blocks:
        raise InputError(f"{path}: no interval (a line that begins with T) is in it. {_REMEDY}")
    rows = np.repeat(np.arange(len(blocks)), [len(row) for row in blocks])
    columns = np.concatenate(blocks) - 1
    shape = (len(blocks), int(columns.max(initial=-1)) + 1)
    return sparse.csr_array((np.concatenate(counts), (rows, columns)), shape=shape)


def write_bbv(vectors: sparse.csr_array, path: Path, /) -> None:
    """Write counts in the same format; column b becomes block b + 1."""
    rows = sparse.csr_array(vectors)
    try:
        with path.open("w", encoding="ascii") as file:
            for row in range(rows.shape[0]):
                part = slice(rows.indptr[row], rows.indptr[row + 1])
                pairs = zip(rows.indices[part] + 1, rows.data[part], strict=True)
                file.write("T" + "".join(f":{block}:{count} " for block, count in pairs) + "\n")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}.") from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each interval's line."""
    try:
        with path.open("rb") as raw:
            data = gzip.decompress(raw.read()) if path.suffix == ".gz" else raw.read()
        text = data.decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}. Give basic-block vectors as text, or as text in .gz.") from error
    for number, line in enumerate(io.StringIO(text), start=1):
        if line.startswith("T"):
            if not line.endswith("\n"):
                raise InputError(f"{path}, line {number}: the file ends within this line. {_REMEDY}")
            yield number, line
        elif line.strip() and not line.startswith("#"):
            raise InputError(
                f"{path}, line {number}: {line[:40]!r} is neither an interval "
                "(T:block:count ...) nor a comment (#)."
            )


def _parse(line: str, *, path: Path, number: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    fields = line[1:].split()
    numbers = ":".join(fields).replace("::", ":").split(":")[1:]
    try:
        pairs = np.array(numbers, dtype=np.int64).reshape(-1, 2)
        well_formed = all(field.startswith(":") and field.count(":") == 2 for field in fields)
    except (ValueError, OverflowError):
        pairs, well_formed = np.empty((0, 2), np.int64), False
    if not well_formed or (pairs[:, 0] < 1).any() or (pairs[:, 1] < 0).any():
        raise InputError(
            f"{path}, line {number}: {line[:60].strip()!r} is not T:block:count :block:count ..., "
            f"with blocks from 1 and counts from 0. {_REMEDY}"
        )
    return pairs
