"""`conccl sample iterations`: the few iterations of a run to profile, by sequence length (SeqPoint)."""

from __future__ import annotations

from dataclasses import replace as changed
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conccl.cli.output import Format, say, write_json, write_table
from conccl.cli.spread import (
    AttentionName,
    Dp,
    Ep,
    Fsdp,
    Microbatches,
    PhaseName,
    Pp,
    RecomputeName,
    Sequences,
    Tp,
)
from conccl.core.errors import InputError

if TYPE_CHECKING:
    from conccl.bench.replay import Replay, Simulate
    from conccl.bench.sweep import Variation
    from conccl.sampling.logs import IterationLog
    from conccl.sampling.study import Study

SIMULATED = "simulated_ns"
"""The statistic that a replay gives a log which has none."""


def iterations(
    log: Annotated[
        Path,
        typer.Argument(
            help="Iterations and their lengths: CSV (iteration,length), JSON lines, Parquet or NumPy."
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- ARGS]", help="Of a replayed function; {length} is filled in, or lengths come last."
        ),
    ] = None,
    *,
    stat: Annotated[
        Path | None,
        typer.Option("--stat", help="Statistics by length: a length column and one column a statistic."),
    ] = None,
    choose_by: Annotated[
        str | None,
        typer.Option("--by", help="The statistic to choose by; default: the first. tokens: sum of lengths."),
    ] = None,
    error: Annotated[
        float, typer.Option("--error", help="Project it within this error, in percent of the whole run.")
    ] = 1.0,
    lengths: Annotated[
        str | None, typer.Option("--lengths", help="The columns that make a length, as a,b.")
    ] = None,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Show what other rules project with as many iterations.")
    ] = False,
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay", metavar="TARGET", help="Simulate the chosen: a model's name, or file.py:function."
        ),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="Where to replay: devices by name or TOML file, as a,b.")
    ] = "",
    whole: Annotated[
        bool, typer.Option("--whole", help="Replay every length too, to see how far off the chosen are.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a number: device.FIELD=VALUE; may be repeated.")
    ] = None,
    vary: Annotated[
        list[str] | None, typer.Option("--vary", help="Several values in turn: device.FIELD=V1,V2,...")
    ] = None,
    sequences: Sequences = 1,
    phase: PhaseName = "training",
    tp: Tp = 1,
    pp: Pp = 1,
    dp: Dp = 1,
    fsdp: Fsdp = 1,
    ep: Ep = 1,
    microbatches: Microbatches = 1,
    recompute: RecomputeName = "none",
    attention: AttentionName = "fused",
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page: lengths, the chosen, error by number.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Choose the few iterations that stand for a whole training run, by their sequence lengths."""
    from conccl.sampling.study import run_of, study_run  # noqa: PLC0415

    run = run_of(log, statistics=stat, lengths=_names(lengths))
    if replay is None:
        if arguments:
            raise InputError(f"{' '.join(arguments)!r}: only a replayed function takes arguments.")
        if not run.statistics and choose_by is None:
            raise InputError(
                f"{log} has no statistic beside the length. Give --stat FILE (length,time_ms), --by tokens,"
                " or --replay TARGET."
            )
        found, replayed = study_run(run, choose_by=choose_by, error_percent=error), None
    else:
        from conccl.cli.replaying import simulator, variations_of  # noqa: PLC0415

        simulate = simulator(
            replay,
            arguments or (),
            names=run.names,
            sequences=sequences,
            phase=phase,
            tp=tp,
            pp=pp,
            dp=dp,
            fsdp=fsdp,
            ep=ep,
            microbatches=microbatches,
            recompute=recompute,
            attention=attention,
        )
        on = variations_of(device, settings=settings, vary=vary)
        found, replayed = _replayed(
            run, replay, on, simulate, choose_by=choose_by, error_percent=error, whole=whole
        )
    _print(found, replayed, output=output, baselines=baselines)
    if html is not None:
        from conccl.report.sampled import write_iterations_page  # noqa: PLC0415
        from conccl.report.sections.replay import replayed_run  # noqa: PLC0415

        further = () if replayed is None else (replayed_run(replayed),)
        write_iterations_page(found, path=html, source=log.name, further=further)
        say(f"wrote {html}")


def _names(lengths: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (lengths or "").split(",") if name.strip())


def _replayed(
    run: IterationLog,
    target: str,
    variations: tuple[Variation, ...],
    simulate: Simulate,
    /,
    *,
    choose_by: str | None,
    error_percent: float,
    whole: bool,
) -> tuple[Study, Replay]:
    """Choose, by the simulated time of every length where the log has nothing else, and replay the chosen."""
    import numpy as np  # noqa: PLC0415

    from conccl.bench.replay import replay, run_time_ns  # noqa: PLC0415
    from conccl.cli.replaying import counted  # noqa: PLC0415
    from conccl.sampling.study import study_run  # noqa: PLC0415

    each = len(run.distinct().length)
    if choose_by == SIMULATED or (choose_by is None and not run.statistics):
        choose_by = SIMULATED
        with counted(simulate, total=each) as counting:
            times = run_time_ns(run, device=variations[0].device, simulate=counting)
        known = run.distinct()
        each_ns = np.array([times[length] for length in map(tuple, known.length.tolist())], dtype=np.float64)
        column = each_ns[known.group]
        run = changed(run, statistics={SIMULATED: column, **run.statistics})
    found = study_run(run, choose_by=choose_by, error_percent=error_percent)
    if choose_by == SIMULATED:
        found = changed(found, simulated_on=variations[0].device.name)
    points = found.selection.seqpoints
    with counted(simulate, total=len(variations) * (each if whole else len(points))) as counting:
        replayed = replay(
            points, target=target, variations=variations, simulate=counting, whole=run if whole else None
        )
    return found, replayed


def _print(found: Study, replayed: Replay | None, /, *, output: Format, baselines: bool) -> None:
    if output is Format.JSON:
        from conccl.report.replay import replay_document  # noqa: PLC0415
        from conccl.sampling.document import iterations_document  # noqa: PLC0415

        document: dict[str, Any] = iterations_document(found)
        if replayed is not None:
            document["replay"] = replay_document(replayed)
        write_json(document)
        return
    from conccl.report.replay import render_replay  # noqa: PLC0415
    from conccl.report.sampling import render_iterations  # noqa: PLC0415

    parts = [render_iterations(found, baselines=baselines)]
    if replayed is not None:
        parts.append(render_replay(replayed))
    write_table(*parts)
