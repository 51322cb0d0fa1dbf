"""`conccl simulate`: how long an iteration takes on GPUs that are not there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conccl.cli.output import Format, write_json, write_table
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
from conccl.core.errors import InputError

if TYPE_CHECKING:
    from conccl.bench.iteration import Iteration
    from conccl.bench.sweep import Variation
    from conccl.core.hardware import Device
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
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a number: device.FIELD=VALUE; may be repeated.")
    ] = None,
    vary: Annotated[
        list[str] | None, typer.Option("--vary", help="Several values in turn: device.FIELD=V1,V2,...")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Simulate an iteration of a model on a cluster: time, exposed communication, share of peak."""
    from conccl.bench.sweep import variations  # noqa: PLC0415
    from conccl.costs.catalogue import load_device, with_fields  # noqa: PLC0415
    from conccl.costs.fields import parse_settings, parse_variations  # noqa: PLC0415

    on = with_fields(load_device(device), parse_settings(tuple(settings or ())))
    if is_code(target):
        simulate_code(
            target,
            arguments or (),
            variations=variations(on, parse_variations(tuple(vary or ()))),
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
    found = [
        (variation, _iteration(workload, variation.device))
        for variation in variations(on, parse_variations(tuple(vary or ())))
    ]
    _print(workload, found, form=form)
    if perfetto is not None:
        from conccl.traces.chrome import write_chrome  # noqa: PLC0415

        write_chrome(found[0][1].timeline, path=perfetto)


def _iteration(workload: Workload, device: Device) -> Iteration:
    from conccl.bench.iteration import simulate_iteration  # noqa: PLC0415
    from conccl.costs.catalogue import system_of  # noqa: PLC0415
    from conccl.sim.executor import SimExecutor  # noqa: PLC0415
    from conccl.workloads.layers import Phase  # noqa: PLC0415

    training = workload.batch.phase is Phase.TRAINING
    workload.parallelism.require_memory(workload.model, device=device, training=training)
    system = system_of(device, gpus=workload.parallelism.gpus)
    return simulate_iteration(workload, executor=SimExecutor(system=system), device=device)


def _print(workload: Workload, found: list[tuple[Variation, Iteration]], *, form: Format) -> None:
    from conccl.report.iteration import document, render_iterations  # noqa: PLC0415

    if form is Format.JSON:
        documents = [
            {"set": dict(variation.changes), **document(workload, variation.device, iteration)}
            for variation, iteration in found
        ]
        whole = {"schema": "conccl.simulate/1", **documents[0]}
        if len(documents) > 1:
            whole["variations"] = documents
        write_json(whole)
        return
    write_table(render_iterations(workload, [(v.name, v.device, i) for v, i in found]))
