"""`conccl tune fused`: the way for each GEMM of a model and its collective, and what that brings."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from conccl.cli.output import Format, write_json, write_table
from conccl.cli.spread import Length, PhaseName, Sequences, Tp, workload_of


class Mover(enum.StrEnum):
    """What moves the bytes of collectives."""

    SM = "sm"
    COPY_ENGINE = "ce"


def fused(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model by name, or a Hugging Face configuration.")
    ],
    *,
    device: Annotated[str, typer.Option("--device", help="A device by name, or a TOML file.")],
    tp: Tp = 8,
    ways: Annotated[
        str, typer.Option("--ways", help="Which to choose from: serial, chunked, tracked.")
    ] = "serial,chunked",
    mover: Annotated[
        Mover, typer.Option("--mover", help="What collectives run on: SMs (NCCL's kernels) or copy engines.")
    ] = Mover.SM,
    table: Annotated[
        Path | None, typer.Option("--table", help="Measured times, which decide where they are near.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Change a number of the device."),
    ] = None,
    sequences: Sequences = 1,
    length: Length = 4096,
    phase: PhaseName = "training",
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Choose how GEMMs and the collectives that they feed or need go together; simulated, nothing is run."""
    from conccl.bench.sweep import variations_of  # noqa: PLC0415
    from conccl.core.plan import Engine  # noqa: PLC0415
    from conccl.costs.catalogue import load_device  # noqa: PLC0415
    from conccl.report.fused import fused_document, render_fused  # noqa: PLC0415
    from conccl.tune.fused_choice import choose, kinds_of_ways  # noqa: PLC0415
    from conccl.tune.fused_model import calls_of_model  # noqa: PLC0415
    from conccl.tune.fused_table import read_table  # noqa: PLC0415

    allowed = kinds_of_ways(ways)
    [variation] = variations_of(load_device(device), settings=settings or (), vary=())
    workload = workload_of(model, tp=tp, sequences=sequences, length=length, phase=phase)
    known = None if table is None else read_table(table)
    found = [
        (call, choose(call.problem, device=variation.device, table=known, ways=allowed))
        for call in calls_of_model(workload, mover=Engine(mover.value))
    ]
    if form is Format.JSON:
        write_json({"schema": "conccl.tune.fused/1", **fused_document(found, device=device)})
    else:
        write_table(render_fused(found, device=device))
