"""`conccl tune cotune`: SMs and pieces of communication and the GEMM's tile, chosen for pairs together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conccl.cli.output import Format, say, write_json, write_table
from conccl.cli.progress import progress_bar


def cotune(
    pairs: Annotated[Path, typer.Argument(metavar="PAIRS.json", help="Pairs of a GEMM and communication.")],
    *,
    device: Annotated[str, typer.Option("--device", help="A device by name, or a TOML file.")],
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="GPUs that communicate.")] = 8,
    most: Annotated[
        int | None,
        typer.Option("--most", min=1, help="Settings to run at most; a tenth of all unless given."),
    ] = None,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Run every setting, for comparison.")
    ] = False,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Find how to run both sides of each pair together; simulated."""
    from conccl.core.errors import InputError  # noqa: PLC0415
    from conccl.costs.catalogue import load_device, system_of  # noqa: PLC0415
    from conccl.report.tuning import cotuned_document, render_cotuned  # noqa: PLC0415
    from conccl.sim.executor import SimExecutor  # noqa: PLC0415
    from conccl.strategies.heuristics import KernelsOf  # noqa: PLC0415
    from conccl.tune.cotune import cotune, exhaust  # noqa: PLC0415
    from conccl.tune.search import Search  # noqa: PLC0415
    from conccl.workloads.pairs import read_pairs  # noqa: PLC0415

    file = read_pairs(pairs)
    system = system_of(load_device(device), gpus=gpus)

    def executor_of(kernels_of: KernelsOf, /) -> SimExecutor:
        return SimExecutor(system=system, kernels_of=kernels_of)

    found, skipped = [], [(one.place, one.reason) for one in file.unreadable]
    with progress_bar("pairs", total=len(file.pairs)) as done:
        for pair in file.pairs:
            try:
                if exhaustive:
                    result = exhaust(pair, system=system, executor_of=executor_of)
                else:
                    search = None if most is None else Search(most=most)
                    result = cotune(pair, system=system, executor_of=executor_of, search=search)
                found.append((pair, result))
            except InputError as error:
                skipped.append((pair.source or "a pair", str(error)))
            done()
    if form is Format.JSON:
        left = [{"source": source, "reason": reason} for source, reason in skipped]
        head = {"schema": "conccl.tune.cotune/1", "executor": "sim", "device": system.device.name}
        write_json({**head, "gpus": gpus, "pairs": cotuned_document(found), "skipped": left})
    else:
        write_table(render_cotuned(found, device=system.device.name))
        for source, reason in skipped:
            say(f"conccl: {source}: {reason}")
    if skipped:
        raise typer.Exit(2)
