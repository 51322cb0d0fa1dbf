"""`conccl simulate`: how long an iteration takes on GPUs that are not there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conccl.cli.output import Format, say, write_json, write_table
from conccl.cli.progress import progress_bar
from conccl.cli.simulate_code import is_code, simulate_code
from conccl.cli.spread import (
    AttentionName,
    Dp,
    Ep,
    Fsdp,
    Interleaving,
    Length,
    Microbatches,
    PhaseName,
    Pp,
    RecomputeName,
    Sequences,
    Tp,
    workload_of,
)
from conccl.cli.sweep import EngineName, Jobs, Output, Settings, Vary
from conccl.core.errors import InputError

if TYPE_CHECKING:
    from conccl.bench.iteration_sweep import Outcome
    from conccl.workloads.steps import Workload


def simulate(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="A model by name, a Hugging Face configuration, or file.py:function."
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Given to the function, as strings.")
    ] = None,
    *,
    device: Annotated[str, typer.Option("--device", help="A device by name, or a TOML file.")],
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, help="GPUs in all; default: what the degrees make.")
    ] = None,
    tp: Tp = 1,
    pp: Pp = 1,
    dp: Dp = 1,
    fsdp: Fsdp = 1,
    ep: Ep = 1,
    microbatches: Microbatches = 1,
    interleaving: Interleaving = 1,
    recompute: RecomputeName = "none",
    attention: AttentionName = "fused",
    sequences: Sequences = 1,
    length: Length = 4096,
    phase: PhaseName = "training",
    perfetto: Annotated[
        Path | None, typer.Option("--perfetto", help="Write the simulated layers as a trace.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with lines and a table.")] = None,
    output: Output = None,
    settings: Settings = None,
    vary: Vary = None,
    jobs: Jobs = None,
    engine: EngineName = "joblib",
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Simulate an iteration of a model on a cluster: time, exposed communication, share of peak."""
    from conccl.bench.iteration_sweep import IterationSweep, simulate_on  # noqa: PLC0415
    from conccl.bench.spreading import workers_of  # noqa: PLC0415
    from conccl.bench.sweep import variations_of  # noqa: PLC0415
    from conccl.costs.catalogue import load_device  # noqa: PLC0415

    devices = variations_of(load_device(device), settings=settings or (), vary=vary or ())
    if is_code(target):
        if html is not None or output is not None or engine != "joblib":
            raise InputError("--html, --output and --engine are for models, not for file.py:function so far.")
        simulate_code(
            target,
            arguments or (),
            variations=devices,
            gpus=gpus,
            perfetto=perfetto,
            form=form,
        )
        return
    if arguments:
        raise InputError(f"{' '.join(arguments)!r}: only file.py:function takes arguments. Leave them out.")
    workload = workload_of(
        target,
        tp=tp,
        pp=pp,
        dp=dp,
        fsdp=fsdp,
        ep=ep,
        microbatches=microbatches,
        interleaving=interleaving,
        recompute=recompute,
        attention=attention,
        sequences=sequences,
        length=length,
        phase=phase,
        gpus=gpus,
    )
    sweep = IterationSweep(workload=workload, folder=output, jobs=jobs, workers=workers_of(engine))
    with progress_bar("iterations", total=len(devices)) as done:
        found = sweep.run(devices, done=done)
    if len(found) == 1 and found[0].iteration is None:
        raise InputError(found[0].reason)
    _print(workload, found, form=form)
    if perfetto is not None:
        from conccl.traces.chrome import write_chrome  # noqa: PLC0415

        first = found[0].iteration
        timeline = first.timeline if first else None  # what an earlier run kept has none
        timeline = timeline or simulate_on(workload, devices[0].device).timeline
        assert timeline is not None, "what was not kept has a timeline"
        write_chrome(timeline, path=perfetto)
    if html is not None:
        from conccl.report.html import write_iterations  # noqa: PLC0415

        write_iterations(workload, found, path=html)
        say(f"wrote {html}")
    if any(outcome.reason for outcome in found):
        raise typer.Exit(2)


def _print(workload: Workload, found: Sequence[Outcome], *, form: Format) -> None:
    from conccl.report.iteration import render_iterations, whole_document  # noqa: PLC0415

    if form is Format.JSON:
        write_json(whole_document(workload, found))
    else:
        write_table(render_iterations(workload, found))
