"""A CSV file that grows row by row while a run goes on, and goes on where a killed run left it."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from conccl.core.errors import InputError, OutputError

Row = Mapping[str, float]


class TableFile:
    """Rows of numbers under a header; every row is with the operating system when `append` returns.

    One process writes it at a time. What an earlier run wrote is kept, save a last line that broke off.
    """

    def __init__(self, path: str | Path, /) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() != ".csv":
            raise OutputError(
                f"cannot write {self.path}: rows are written as CSV. Give a path ending in .csv."
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._opened()
        except OSError as error:
            raise OutputError(
                f"cannot write {self.path}: {error.strerror}. Give a path in a folder that you may write to."
            ) from error
        self.columns, self.rows = self._read()

    def append(self, row: Row, /) -> None:
        """Add a row; the first one decides the columns."""
        if not self.columns:
            self.columns = tuple(row)
            self._file.write(_line(self.columns))
        self._file.write(_line([_text(row[name]) for name in self.columns]))
        self._file.flush()

    def replace(self, rows: Sequence[Row], /) -> None:
        """Write all rows anew; what stood there is lost only once the new file is whole."""
        columns = tuple(rows[0]) if rows else ()
        new = self.path.with_name(self.path.name + ".new")
        lines = [_line(columns)] if columns else []
        lines += [_line([_text(row[name]) for name in columns]) for row in rows]
        new.write_text("".join(lines), encoding="utf-8")
        new.replace(self.path)
        self.close()
        self._file = self._opened()
        self._file.seek(0, os.SEEK_END)
        self.columns = columns

    def close(self) -> None:
        """Let others write it; workers that a loader forked hold the file too, so the lock goes first."""
        self._let_go()

    def _opened(self) -> TextIO:
        file = self.path.open("a+", newline="", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise OutputError(
                f"{self.path} is being written by another recorder. Give each process a file of its own."
            ) from None
        self._let_go = weakref.finalize(self, _let_go, file)
        return file

    def _read(self) -> tuple[tuple[str, ...], list[dict[str, float]]]:
        self._file.seek(0)
        try:
            text = self._file.read()
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path} is there and no text ({error}). Give another path.") from error
        whole = text[: text.rfind("\n") + 1]
        if len(whole) < len(text):
            self._file.truncate(len(whole.encode()))
        lines = list(csv.reader(io.StringIO(whole)))
        columns = tuple(lines[0]) if lines else ()
        try:
            rows = [dict(zip(columns, map(float, line), strict=True)) for line in lines[1:]]
        except ValueError as error:
            raise InputError(
                f"{self.path} is there and holds other than rows of numbers ({error}). Give another path."
            ) from error
        return columns, rows


def _let_go(file: TextIO, /) -> None:
    fcntl.flock(file, fcntl.LOCK_UN)
    file.close()


def _text(value: float, /) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def _line(cells: Sequence[str], /) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
