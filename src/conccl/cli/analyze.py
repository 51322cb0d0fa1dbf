"""`conccl analyze`: from profiler traces to where overlap goes, on one screen, as JSON, as a page."""

from __future__ import annotations

import contextlib
import enum
import glob
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from conccl.cli.output import Format, write_json

ROWS_FOR_PERFETTO = 500_000
"""Perfetto draws whole traces; a page beside it keeps both to what a browser draws at once."""


class HostCopies(enum.StrEnum):
    """What copies between host and device count as (`conccl.traces.classify` without its imports)."""

    COPY = "copy"
    COMMUNICATION = "communication"


def analyze(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Traces: .json, .json.gz, .tar.gz; folders and globs of them; all of one run.",
        ),
    ],
    *,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with timelines.")] = None,
    perfetto: Annotated[
        Path | None, typer.Option("--perfetto", help="Write a trace with overlap lanes for Perfetto.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write a CSV file for each table into this folder.")
    ] = None,
    step: Annotated[int | None, typer.Option("--step", help="Only what this step launched.")] = None,
    rank: Annotated[int | None, typer.Option("--rank", help="Only this rank.")] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", help="TOML file of further rules on what kernels are.")
    ] = None,
    host_copies: Annotated[
        HostCopies, typer.Option("--host-copies", help="What copies from and to the host count as.")
    ] = HostCopies.COPY,
    device: Annotated[
        str | None,
        typer.Option("--device", help="The GPU where traces do not name it: see `conccl devices`."),
    ] = None,
    measured_only: Annotated[
        bool, typer.Option("--measured-only", help="Nothing but what the traces hold: no predictions.")
    ] = False,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Say where the time of profiler traces goes and what overlap costs: no GPU needed."""
    from conccl.advise.workers import children_ahead, keep_freed_memory  # noqa: PLC0415

    keep_freed_memory()
    with children_ahead(_children(paths), module="conccl.advise.analyze"), _progress() as progress:
        from conccl.advise.analyze import analyze as analyze_traces  # noqa: PLC0415
        from conccl.advise.drawing import ROWS_DRAWN  # noqa: PLC0415
        from conccl.advise.predict import COST_MODELS  # noqa: PLC0415

        analysis = analyze_traces(
            paths,
            step=step,
            rank=rank,
            rules=rules,
            host_copies=host_copies.value,
            device=device,
            rows_drawn=ROWS_FOR_PERFETTO if perfetto is not None and html is None else ROWS_DRAWN,
            predict=None if measured_only else COST_MODELS,
            progress=progress,
        )
    if output is Format.JSON:
        from conccl.advise.document import to_document  # noqa: PLC0415

        write_json(to_document(analysis))
    else:
        from rich.console import Console  # noqa: PLC0415

        from conccl.report.terminal import render_terminal  # noqa: PLC0415

        Console().print(render_terminal(analysis))
    if html is not None:
        from conccl.report.html import write_html  # noqa: PLC0415

        write_html(analysis, path=html)
        typer.echo(f"wrote {html}", err=True)
    if perfetto is not None:
        from conccl.report.perfetto import write_perfetto  # noqa: PLC0415

        write_perfetto(analysis, path=perfetto)
        typer.echo(f"wrote {perfetto}", err=True)
    if csv is not None:
        from conccl.report.tables import write_csv  # noqa: PLC0415

        for written in write_csv(analysis, folder=csv):
            typer.echo(f"wrote {written}", err=True)
    for problem in analysis.problems:
        typer.echo(f"conccl: not read: {problem}", err=True)
    if analysis.problems:
        raise typer.Exit(2)


WORTH_CHILDREN = 4 << 20
"""Packed bytes from which on children are begun before anything is known but the size of the files."""


def _children(paths: list[str]) -> int:
    """How many processes beside this one will surely have work, by CPUs and by number and size of files."""
    from conccl.advise.workers import cpus  # noqa: PLC0415

    sizes = []
    for path in paths:
        found = map(Path, glob.glob(path))  # noqa: PTH207 (takes absolute patterns)
        below = Path(path).rglob("*.json*") if Path(path).is_dir() else found
        with contextlib.suppress(OSError):
            sizes += [file.stat().st_size for file in below]
    return min(cpus(), len(sizes)) - 1 if sum(sizes) >= WORTH_CHILDREN else 0


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error while files are read, where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading traces", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
