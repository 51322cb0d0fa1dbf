"""`conccl tune choose`: which strategy each pair should run by, and what is expected of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conccl.cli.output import Format, say, write_json, write_table
from conccl.cli.spread import Dp, Ep, Fsdp, Length, PhaseName, Sequences, Tp, workload_of


def choose(
    what: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|PAIRS.json", help="A model by name, a Hugging Face configuration, or pairs."
        ),
    ],
    *,
    device: Annotated[str, typer.Option("--device", help="A device by name, or a TOML file.")],
    tables: Annotated[
        Path | None, typer.Option("--tables", help="Tables from `conccl tune tables`; found by device.")
    ] = None,
    tp: Tp = 1,
    ep: Ep = 1,
    fsdp: Fsdp = 1,
    dp: Dp = 1,
    sequences: Sequences = 1,
    length: Length = 4096,
    phase: PhaseName = "training",
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Choose a strategy for every pair from tables; nothing is run."""
    from conccl.costs.catalogue import load_device  # noqa: PLC0415
    from conccl.report.tuning import choices_document, render_choices  # noqa: PLC0415
    from conccl.tune.policy import Policy  # noqa: PLC0415
    from conccl.tune.shapes import modelled  # noqa: PLC0415
    from conccl.tune.tables import find_tables, read_tables  # noqa: PLC0415
    from conccl.workloads.model_pairs import pairs_of_model  # noqa: PLC0415
    from conccl.workloads.pairs import PairFile, holds_pairs, read_pairs  # noqa: PLC0415

    on = load_device(device)
    known = find_tables(on) if tables is None else read_tables(tables)
    if holds_pairs(Path(what)):
        file = read_pairs(Path(what))
    else:
        workload = workload_of(
            what, tp=tp, ep=ep, fsdp=fsdp, dp=dp, sequences=sequences, length=length, phase=phase
        )
        file = PairFile(pairs=pairs_of_model(workload))
    policy = Policy(tables=known, device=on)
    for op in dict.fromkeys(pair.compute for pair in file.pairs):
        policy.learn(modelled(op, on))
    found = [(pair, policy.choose(pair)) for pair in file.pairs]
    if form is Format.JSON:
        skipped = [{"source": one.place, "reason": one.reason} for one in file.unreadable]
        write_json({"schema": "conccl.tune.choose/1", **choices_document(found, known), "skipped": skipped})
    else:
        write_table(render_choices(found, known))
        for one in file.unreadable:
            say(f"conccl: {one.place}: {one.reason}")
    if file.unreadable:
        raise typer.Exit(2)
