"""`conccl compare`: two stores of measurements, cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conccl.cli.output import Format, write_json, write_table


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A store, or a folder that characterize wrote.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="What is compared with it.")],
    *,
    matters: Annotated[
        float, typer.Option("--matters", help="Share below which a difference is none.")
    ] = 0.01,
    unlike: Annotated[
        bool, typer.Option("--unlike", help="Compare other devices or executors all the same.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Print cells that are the same, too.")] = False,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Say for every cell whether B is the SAME, FASTER, SLOWER or AMBIGUOUS; exit code 1 where slower."""
    from conccl.bench.compare import compare as compared  # noqa: PLC0415
    from conccl.report.stores import compared_document, labels_of, render_compared  # noqa: PLC0415

    found = compared(a, b, matters=matters, unlike=unlike)
    labels = {**labels_of(b), **labels_of(a)}
    if form is Format.JSON:
        write_json({"schema": "conccl.compare/1", **compared_document(found, labels)})
    else:
        write_table(render_compared(found, labels, every=every))
    if found.is_worse:
        raise typer.Exit(1)
