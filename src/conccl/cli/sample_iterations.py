"""`conccl sample iterations`: the few iterations of a run to profile, by sequence length (SeqPoint)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conccl.cli.output import Format, write_json, write_table


def iterations(
    log: Annotated[
        Path,
        typer.Argument(
            help="Iterations and their lengths: CSV (iteration,length), JSON lines, Parquet or NumPy."
        ),
    ],
    stat: Annotated[
        Path | None,
        typer.Option("--stat", help="Statistics by length: a length column and one column a statistic."),
    ] = None,
    choose_by: Annotated[
        str | None, typer.Option("--by", help="The statistic to choose by; default: the first one.")
    ] = None,
    error: Annotated[
        float, typer.Option("--error", help="Project it within this error, in percent of the whole run.")
    ] = 1.0,
    *,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Show what other rules project with as many iterations.")
    ] = False,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Choose the few iterations that stand for a whole training run, by their sequence lengths."""
    from conccl.sampling.study import study  # noqa: PLC0415

    found = study(log, statistics=stat, choose_by=choose_by, error_percent=error)
    if output is Format.JSON:
        from conccl.sampling.document import iterations_document  # noqa: PLC0415

        write_json(iterations_document(found))
    else:
        from conccl.report.sampling import render_iterations  # noqa: PLC0415

        write_table(render_iterations(found, baselines=baselines))
