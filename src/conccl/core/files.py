"""Files that users name: what may be read, and the one place that turns a failed write into a message."""

from __future__ import annotations

import contextlib
import gzip
import io
import stat
from collections.abc import Iterable
from pathlib import Path

from conccl.core.errors import InputError, OutputError


def regular(path: str | Path, /) -> Path:
    """The path, if reading it can end: pipes and devices, which may never, are an `InputError`.

    Whether it is there and may be read is told by opening it.
    """
    path = Path(path)
    with contextlib.suppress(OSError, ValueError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise InputError(f"{path} is a pipe or device. Write it to a file first, and name that.")
    return path


def write_file(path: str | Path, chunks: Iterable[bytes], /) -> None:
    """Write the chunks to a file, made with the folders it lies in; one that ends in .gz is compressed.

    What stood there is replaced. Raises `OutputError` where the path cannot be written.
    """
    path = Path(path)
    if "\0" in str(path):
        raise OutputError(f"cannot write {str(path)!r}: a path has no null bytes. Give another path.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as raw, _compressed(raw, path) as file:
            for chunk in chunks:
                file.write(chunk)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(
            f"cannot write {path}: {reason}. Give a path of a file in a folder that you may write to."
        ) from error


def _compressed(raw: io.BufferedWriter, path: Path) -> io.BufferedWriter | gzip.GzipFile:
    # No name and no time in the header: the same result gives the same bytes.
    return gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if path.suffix == ".gz" else raw
