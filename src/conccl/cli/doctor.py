"""`conccl doctor`: what this machine can do, and what it was seen from."""

from __future__ import annotations

from typing import Annotated

import typer

from conccl.cli.output import Format, write_json, write_table
from conccl.cli.progress import progress_bar


def doctor(
    *,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1.0, help="What one probe of the GPU may take.")
    ] = 60.0,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Say what this machine can do, each line with its evidence; exit code 1 where a probe failed or hung."""
    from conccl.gpu.doctor import examine, stages  # noqa: PLC0415
    from conccl.report.doctor import doctor_document, render_doctor  # noqa: PLC0415

    with progress_bar("probes", total=stages()) as done:
        found = examine(seconds=seconds, done=done)
    if form is Format.JSON:
        write_json({"schema": "conccl.doctor/1", **doctor_document(found)})
    else:
        write_table(render_doctor(found))
    if found.is_broken:
        raise typer.Exit(1)
