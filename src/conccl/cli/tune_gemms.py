"""`conccl tune gemms`: kernels and logic for GEMMs that run together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conccl.cli.output import Format, is_watched, say, write_json, write_table


def gemms(
    sets: Annotated[
        Path, typer.Argument(help='Sets of independent GEMMs: a JSON list of {"name", "dtype", "gemms"}.')
    ],
    *,
    device: Annotated[str, typer.Option("--device", help="A device's name, or a TOML file.")],
    library: Annotated[
        Path | None, typer.Option("--library", help="Write the GO-kernels and the logic to this file.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", help="Keep measurements here; an interrupted run goes on.")
    ] = None,
    busy_sms: Annotated[int, typer.Option("--busy-sms", help="SMs that somebody else has taken.")] = 0,
    corpus: Annotated[
        int, typer.Option("--corpus", help="Drawn sets that the logic is trained on, beside yours.")
    ] = 300,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Tune GEMM kernels for running together, on the simulator, and train what decides how many."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import track  # noqa: PLC0415

    from conccl.bench.store import Store  # noqa: PLC0415
    from conccl.core.errors import InputError  # noqa: PLC0415
    from conccl.costs.catalogue import load_device  # noqa: PLC0415
    from conccl.report.gemms import gemms_table  # noqa: PLC0415
    from conccl.tune.gemms import build as building  # noqa: PLC0415
    from conccl.tune.gemms.choice import read_sets  # noqa: PLC0415
    from conccl.tune.gemms.document import to_document  # noqa: PLC0415
    from conccl.tune.gemms.library import save  # noqa: PLC0415
    from conccl.tune.gemms.running import SimulatedRunner  # noqa: PLC0415

    tuned_for = load_device(device)
    if not 0 <= busy_sms < tuned_for.sm_count:
        raise InputError(f"--busy-sms {busy_sms}: {tuned_for.name} has {tuned_for.sm_count} SMs.")
    if corpus < 0:
        raise InputError(f"--corpus {corpus}: give 0 or more.")
    own = read_sets(sets)
    runner = SimulatedRunner(device=tuned_for, busy_sms=busy_sms)
    drawn = building.corpus(corpus) if library is not None else ()
    shown = track(
        [*own, *drawn],
        description="tuning",
        console=Console(stderr=True),
        disable=not is_watched(),
        transient=True,
    )
    keeper = None if store is None else Store(store, environment=runner.environment)
    found = list(building.surveyed(shown, device=tuned_for, runner=runner, keeper=keeper))
    if library is not None:
        save(building.library_of(found, device=tuned_for, runner=runner), library)
        say(f"conccl: wrote {library} (predicted by the simulator, not measured)")
    found = found[: len(own)]
    if output is Format.JSON:
        write_json(to_document(found, device=tuned_for.name, executor="sim"))
    else:
        write_table(gemms_table(found, device=tuned_for.name, executor="sim"))
