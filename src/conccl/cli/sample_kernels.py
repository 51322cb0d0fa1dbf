"""`conccl sample kernels`: the few kernels that stand for all of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conccl.cli.output import Format, say, write_json, write_table
from conccl.core.errors import InputError


def kernels(
    trace: Annotated[list[Path], typer.Argument(help="Profiler traces: files, folders or globs.")],
    rank: Annotated[
        int | None, typer.Option("--rank", help="The rank to look at; default: the first.")
    ] = None,
    error: Annotated[
        float,
        typer.Option("--error", help="Stop when the 95 % interval is within this, in percent."),
    ] = 1.0,
    most: Annotated[int | None, typer.Option("--most", help="Choose no more kernels than this.")] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Choose the few kernels that stand for all of a trace, with weights and a confidence interval."""
    from conccl.sampling.kernels import sample_kernels  # noqa: PLC0415
    from conccl.traces.kernel_rows import kernel_rows  # noqa: PLC0415

    rows = kernel_rows(trace, rank=rank)
    if not rows.names:
        raise InputError(
            f"{', '.join(map(str, trace))}: no kernels. Give a trace that recorded GPU activity."
        )
    sample = sample_kernels(rows.names, rows.durations_ns, error_percent=error, most=most)
    if output is Format.JSON:
        from conccl.sampling.document import kernels_document  # noqa: PLC0415

        write_json(kernels_document(sample, device=rows.device))
    else:
        from conccl.report.sampling import render_kernels  # noqa: PLC0415

        write_table(render_kernels(sample))
    for warning in rows.warnings:
        say(f"conccl: rank {rows.rank}: {warning}")
    for problem in rows.problems:
        say(f"conccl: not read: {problem}")
    if rows.problems:
        raise typer.Exit(2)
