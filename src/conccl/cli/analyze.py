"""`conccl analyze`: from profiler traces to where overlap goes, on one screen, as JSON, as a page."""

from __future__ import annotations

import contextlib
import enum
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conccl.cli.output import Format, is_watched, say, write_json, write_table
from conccl.core.errors import InputError, OutputError

if TYPE_CHECKING:
    from conccl.advise.analysis import Analysis

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
    _refuse_to_replace_traces(html=html, perfetto=perfetto)
    from conccl.advise.workers import collect_garbage_seldom, keep_freed_memory  # noqa: PLC0415

    keep_freed_memory()
    collect_garbage_seldom()
    with _progress() as progress:
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
    failed = _write_files(analysis, html=html, perfetto=perfetto, csv=csv)
    _print(analysis, output)
    for problem in analysis.problems:
        say(f"conccl: not read: {problem}")
    for error in failed:
        say(f"conccl: error: {error}")
    gc.freeze()  # so that the interpreter's end does not look through everything once more
    if analysis.problems or failed:
        raise typer.Exit(2)


def _refuse_to_replace_traces(*, html: Path | None, perfetto: Path | None) -> None:
    """Stop before a value that was forgotten costs a trace: ``--html traces/*`` names the first of them."""
    if html is not None and html.name.lower().endswith(_ENDINGS_OF_TRACES):
        raise InputError(
            f"--html {html} has the name of a trace. Name the page to write, as in --html overlap.html."
        )
    if perfetto is not None:
        from conccl.traces.chrome import is_other_s  # noqa: PLC0415

        if is_other_s(perfetto):
            raise OutputError(
                f"{perfetto} is there and not of conccl's making, so --perfetto leaves it alone."
                " Give another name."
            )


_ENDINGS_OF_TRACES = (".json", ".gz", ".tar", ".tgz")


def _write_files(
    analysis: Analysis, *, html: Path | None, perfetto: Path | None, csv: Path | None
) -> list[OutputError]:
    """Write each file that was asked for, whatever became of the others."""
    failed = []
    for path, write in ((html, _write_html), (perfetto, _write_perfetto), (csv, _write_csv)):
        if path is not None:
            try:
                for written in write(analysis, path):
                    say(f"wrote {written}")
            except OutputError as error:
                failed.append(error)
    return failed


def _write_html(analysis: Analysis, path: Path) -> tuple[Path, ...]:
    from conccl.report.html import write_html  # noqa: PLC0415

    write_html(analysis, path=path)
    return (path,)


def _write_perfetto(analysis: Analysis, path: Path) -> tuple[Path, ...]:
    from conccl.report.perfetto import write_perfetto  # noqa: PLC0415

    write_perfetto(analysis, path=path)
    return (path,)


def _write_csv(analysis: Analysis, folder: Path) -> tuple[Path, ...]:
    from conccl.report.tables import write_csv  # noqa: PLC0415

    return write_csv(analysis, folder=folder)


def _print(analysis: Analysis, output: Format) -> None:
    if output is Format.JSON:
        from conccl.advise.document import to_document  # noqa: PLC0415

        write_json(to_document(analysis))
    else:
        from conccl.report.terminal import render_terminal  # noqa: PLC0415

        write_table(render_terminal(analysis))


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error while files are read, where that is a terminal."""
    if not is_watched():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading traces", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
