"""What every command prints: results alone on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import enum
import io
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from conccl.core.errors import OutputError

if TYPE_CHECKING:
    from rich.console import RenderableType


class Format(enum.StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


def write_json(document: Mapping[str, Any], /) -> None:
    """One JSON document on standard output; figures without meaning are null, never NaN.

    It is ASCII (other characters are escaped), so that no terminal's or pipe's encoding can break it.
    """
    with standard_output() as out:
        json.dump(_finite(document), out, indent=2, allow_nan=False)
        out.write("\n")


def write_table(*parts: RenderableType) -> None:
    """Tables and texts on standard output, in colour where that is a terminal."""
    from rich.console import Console  # noqa: PLC0415

    with standard_output() as out:
        console = Console(file=out)
        with console.capture() as captured:  # rich would end the process where a pipe's reader has gone
            for part in parts:
                console.print(part, highlight=not isinstance(part, str))
        out.write(captured.get())


def say(message: str, /) -> None:
    """A message on standard error, with what names of others' files hide in it spelled out."""
    from conccl.report.names import shown  # noqa: PLC0415

    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print("\n".join(map(shown, message.split("\n"))), file=sys.stderr)  # noqa: T201 (the one place)


def is_watched() -> bool:
    """Whether somebody sees what goes to standard error as it comes: then progress is shown."""
    return sys.stderr is not None and sys.stderr.isatty()


def survive_encodings() -> None:
    """Let a character that the terminal's encoding lacks become a question mark rather than an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@contextlib.contextmanager
def standard_output() -> Iterator[TextIO]:
    """Standard output; whose reader has gone (head, less) has read enough, other failures are told."""
    if sys.stdout is None:
        raise OutputError("standard output is closed. Send it to a file or a pipe.")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        _discard_output()
        raise OutputError(
            f"cannot write to standard output: {error.strerror}. Send it to a file or pipe that takes it."
        ) from error


def _discard_output() -> None:
    """Let what is still buffered go nowhere, or writing it fails once more when the process ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_text(path: Path, text: str, /) -> None:
    """A file that a user asked for, made with the folders it lies in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror}. Give a path in a folder that you may write to."
        ) from error


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
