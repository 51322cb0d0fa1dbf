"""A bar on standard error that shows how far long work has come."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from conccl.cli.output import is_watched


@contextlib.contextmanager
def progress_bar(what: str, /, *, total: int) -> Iterator[Callable[[], None]]:
    """Yields what is to be called once a step; nothing is shown where standard error is no terminal."""
    if not is_watched():
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda: progress.advance(bar)
