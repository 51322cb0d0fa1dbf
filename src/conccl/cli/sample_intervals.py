"""`conccl sample intervals`: the few intervals of a program that stand for its whole run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from conccl.cli.output import Format, is_watched, say, write_json, write_table, write_text
from conccl.core.errors import InputError
from conccl.sampling.intervals.methods import Method, Translator


def intervals(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- PROGRAM ARGS", help="The program, behind --, and its arguments."),
    ] = None,
    *,
    vectors: Annotated[
        Path | None,
        typer.Option(
            "--vectors", help="Instead of a program: a file of basic-block vectors, as exp-bbv writes them."
        ),
    ] = None,
    interval: Annotated[
        str, typer.Option("--interval", help="Instructions of an interval; K, M and G are powers of 1000.")
    ] = "10M",
    method: Annotated[Method, typer.Option("--method", help="How intervals are told apart.")] = Method.DARTS,
    translator: Annotated[
        Translator | None,
        typer.Option(
            "--translator",
            help="darts: attach (default where frida is installed), qemu; simpoint: qemu, valgrind.",
            show_default=False,
        ),
    ] = None,
    max_clusters: Annotated[int, typer.Option("--max-clusters", help="Choose no more points.")] = 30,
    points_only: Annotated[
        bool, typer.Option("--points-only", help="Do not run the chosen intervals in detail: no projection.")
    ] = False,
    stdin: Annotated[
        Path | None, typer.Option("--stdin", help="A file to give the program as standard input.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output", help="A folder for .simpoints, .weights, points.json and, of simpoint, .bb."
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page: phases over time, and the chosen.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Choose the intervals of a single-threaded program that stand for its whole run.

    The program runs two or three times, so it must do the same each time. What it prints is dropped.
    """
    from conccl.sampling.intervals.document import intervals_document  # noqa: PLC0415
    from conccl.sampling.intervals.flow import sample_intervals, sample_vectors  # noqa: PLC0415
    from conccl.sampling.intervals.program import find_program  # noqa: PLC0415

    if vectors is not None:
        if command:
            raise InputError(
                f"--vectors {vectors} and a program ({command[0]}) were given. Give one of them."
            )
        sample = sample_vectors(vectors, max_clusters=max_clusters, folder=folder)
    else:
        program = find_program(command or [], stdin=str(stdin) if stdin else None)
        with _progress() as progress:
            sample = sample_intervals(
                program,
                method=method,
                translator=translator,
                interval=parse_instructions(interval),
                max_clusters=max_clusters,
                detailed=not points_only,
                folder=folder,
                progress=progress,
            )
    for warning in sample.warnings:
        say(f"conccl: warning: {warning}")
    document = intervals_document(sample)
    if folder is not None:
        write_text(folder / "points.json", json.dumps(document, indent=2) + "\n")
    if html is not None:
        from conccl.report.sampled import write_intervals_page  # noqa: PLC0415

        write_intervals_page(sample, path=html, source=" ".join(sample.argv) or str(vectors))
        say(f"wrote {html}")
    if output is Format.JSON:
        write_json(document)
    else:
        from conccl.report.intervals import render_intervals  # noqa: PLC0415

        write_table(render_intervals(sample))


def parse_instructions(text: str) -> int:
    """A count of instructions from ``10M``.

    >>> parse_instructions("2.5M")
    2500000
    """
    factor = {"K": 1_000, "M": 1_000_000, "G": 1_000_000_000}.get(text[-1:].upper(), 1)
    number = text[:-1] if factor > 1 else text
    try:
        return round(float(number.replace(",", "").replace("_", "")) * factor)
    except (ValueError, OverflowError):
        raise InputError(
            f"--interval {text!r} is no count. Give instructions, as in 500000, 10M or 0.1G."
        ) from None


_STAGES = {
    "profile": "running the program to tell its phases apart",
    "cluster": "grouping its intervals",
    "detail": "running the chosen intervals in detail",
}


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What is being done, on a terminal."""
    if not is_watched():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415

    with Console(stderr=True).status("starting") as status:
        yield lambda stage: status.update(_STAGES[stage])
