"""`conccl characterize`: what each strategy brings pairs of computation and communication."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conccl.cli.output import Format, say, write_json, write_table, write_text
from conccl.cli.progress import progress_bar
from conccl.cli.spread import Dp, Ep, Fsdp, Length, PhaseName, Sequences, Tp, workload_of
from conccl.cli.sweep import EngineName, Jobs, Output, Settings, Vary

if TYPE_CHECKING:
    from conccl.bench.results import Characterization
    from conccl.bench.sweep import Variation
    from conccl.workloads.pairs import PairFile
    from conccl.workloads.steps import Workload

DEFAULT_STRATEGIES = "serial,baseline,prioritized,partitioned,prioritized_partitioned,ce,ce_trimmed"


def characterize(
    what: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|PAIRS.json", help="A model by name, a Hugging Face configuration, or pairs."
        ),
    ],
    *,
    device: Annotated[str, typer.Option("--device", help="A device by name, or a TOML file.")],
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="GPUs that communicate.")] = 8,
    executor: Annotated[str, typer.Option("--executor", help="sim or gpu.")] = "sim",
    strategies: Annotated[
        str, typer.Option("--strategies", help="Names, with commas; partitioned:16 sets a size.")
    ] = DEFAULT_STRATEGIES,
    tp: Tp = 1,
    ep: Ep = 1,
    fsdp: Fsdp = 1,
    dp: Dp = 1,
    sequences: Sequences = 1,
    length: Length = 4096,
    phase: PhaseName = "training",
    output: Output = None,
    settings: Settings = None,
    vary: Vary = None,
    jobs: Jobs = None,
    engine: EngineName = "joblib",
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with bars and tables.")] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Measure or simulate pairs alone and together, by every strategy, and say how much of ideal is left."""
    from conccl.bench.characterize import strategies_of  # noqa: PLC0415
    from conccl.bench.spreading import workers_of  # noqa: PLC0415
    from conccl.bench.sweep import Sweep, variations_of  # noqa: PLC0415
    from conccl.costs.catalogue import load_device  # noqa: PLC0415
    from conccl.tune.policy import strategy_for  # noqa: PLC0415
    from conccl.workloads.pairs import holds_pairs, read_pairs  # noqa: PLC0415

    devices = variations_of(load_device(device), settings=settings or (), vary=vary or ())
    names = [name for name in strategies.split(",") if name.strip()]
    chosen = strategies_of(names, policy=strategy_for)
    if holds_pairs(Path(what)):
        file = read_pairs(Path(what))
    else:
        file = _pairs_of_model(
            workload_of(what, tp=tp, ep=ep, fsdp=fsdp, dp=dp, sequences=sequences, length=length, phase=phase)
        )
    sweep = Sweep(
        executor=executor,
        gpus=gpus,
        strategies=chosen,
        folder=output,
        jobs=jobs,
        workers=workers_of(engine),
    )
    with progress_bar("pairs", total=len(file.pairs) * len(devices)) as done:
        results = sweep.run_all(devices, file.pairs, done=done)
        found = list(zip(devices, results, strict=True))
    _print(found, file, form=form, output=output)
    if html is not None:
        from conccl.report.html import write_characterization  # noqa: PLC0415

        write_characterization(found, path=html, title=f"What strategies bring: {what}")
        say(f"wrote {html}")
    if file.unreadable or any(one.skipped or one.failures() for _, one in found):
        raise typer.Exit(2)


def _pairs_of_model(workload: Workload) -> PairFile:
    from conccl.workloads.model_pairs import pairs_of_model  # noqa: PLC0415
    from conccl.workloads.pairs import PairFile  # noqa: PLC0415

    return PairFile(pairs=pairs_of_model(workload))


def _print(
    found: list[tuple[Variation, Characterization]], file: PairFile, *, form: Format, output: Path | None
) -> None:
    from conccl.report.characterization import document, render_characterization  # noqa: PLC0415

    unreadable = [{"source": one.place, "reason": one.reason} for one in file.unreadable]
    documents = [{"set": dict(variation.changes), **document(one)} for variation, one in found]
    for each in documents:
        each["skipped"] = unreadable + each["skipped"]
    whole = {"schema": "conccl.characterize/1", **documents[0]}
    if len(documents) > 1:
        whole["variations"] = documents
    if output is not None:
        write_text(output / "characterize.json", json.dumps(whole, indent=1) + "\n")
    if form is Format.JSON:
        write_json(whole)
        return
    if len(found) > 1:
        from conccl.report.sweep_table import render_characterizations  # noqa: PLC0415

        write_table(render_characterizations(found))
    else:
        write_table(render_characterization(found[0][1]))
    for entry in unreadable:
        say(f"conccl: {entry['source']}: {entry['reason']}")
