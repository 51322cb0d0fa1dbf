"""`conccl tune tables`: measure once a machine what `conccl tune choose` and the policy read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conccl.cli.output import Format, say, write_json, write_table
from conccl.cli.progress import progress_bar


def tables(
    *,
    device: Annotated[str, typer.Option("--device", help="A device by name, or a TOML file.")],
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="GPUs that communicate.")] = 8,
    executor: Annotated[str, typer.Option("--executor", help="sim or gpu.")] = "sim",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", help="File for the tables (.json or .json.gz); this user's cache unless given."
        ),
    ] = None,
    cells: Annotated[
        Path | None,
        typer.Option("--cells", help="File for every measurement; an interrupted run goes on from it."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a number: device.FIELD=VALUE; may be repeated.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Run GEMMs, transfers and pairs of both, and keep how long they take."""
    from conccl.bench.executors import open_bench  # noqa: PLC0415
    from conccl.bench.store import Store  # noqa: PLC0415
    from conccl.costs.catalogue import load_device, system_of, with_fields  # noqa: PLC0415
    from conccl.costs.fields import parse_settings  # noqa: PLC0415
    from conccl.report.tuning import render_tables, tables_document  # noqa: PLC0415
    from conccl.tune.build import build_tables, cells_in  # noqa: PLC0415
    from conccl.tune.tables import own_path, write_tables  # noqa: PLC0415

    on = with_fields(load_device(device), parse_settings(tuple(settings or ())))
    system = system_of(on, gpus=gpus)
    bench = open_bench(executor, device=on, gpus=gpus)
    path = own_path(on.name) if output is None else output
    name = path.name.removesuffix(".gz").removesuffix(".json")
    keep = Store(cells or path.with_name(f"{name}.cells.jsonl"), environment=bench.environment)
    with progress_bar("cells", total=cells_in(system)) as done:
        found = build_tables(bench, system=system, keep=keep, done=done)
    write_tables(path, found)
    say(f"wrote {path}")
    if form is Format.JSON:
        write_json({"schema": "conccl.tune.tables/1", **tables_document(found, path=path)})
    else:
        write_table(render_tables(found))
