"""The options with which commands take sweeps, and the bar that shows how far one is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from conccl.cli.output import is_watched

Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Change a number: device.FIELD=VALUE; may be repeated.")
]
Vary = Annotated[
    list[str] | None,
    typer.Option("--vary", help="Several values in turn: device.FIELD=V1,V2,... Repeated: all combinations."),
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes; default: as many as pay.")]
EngineName = Annotated[
    str, typer.Option("--engine", help="Who works: joblib (processes here) or ray (a Ray cluster).")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", help="Folder for results; an interrupted sweep goes on there."),
]


@contextlib.contextmanager
def progress(of: str, /, *, total: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error where that is a terminal; what it gives is called after each."""
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task(of, total=total)
        yield lambda: shown.advance(bar)
