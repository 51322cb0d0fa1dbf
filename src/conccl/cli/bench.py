"""`conccl bench`: times and bandwidths of a collective over sizes, in nccl-tests' words."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conccl.cli.output import Format, say, standard_output, write_json
from conccl.core.errors import ConcclError, InputError, UnknownNameError
from conccl.core.kinds import CollectiveKind

if TYPE_CHECKING:
    from conccl.bench.collectives import CollectiveRow
    from conccl.integrations.collective_bench.asked import BenchRequest

_OTHER_NAMES = {"alltoall": "all_to_all", "allgather": "all_gather", "allreduce": "all_reduce"}


def bench(
    collective: Annotated[
        str, typer.Argument(help="all_reduce, all_gather, reduce_scatter, all_to_all, ...")
    ],
    *,
    least: Annotated[str, typer.Option("-b", "--minbytes", help="The first size.")] = "1K",
    most: Annotated[str, typer.Option("-e", "--maxbytes", help="The last size.")] = "64M",
    factor: Annotated[int, typer.Option("-f", "--stepfactor", help="Each size over the one before.")] = 2,
    step: Annotated[
        str | None, typer.Option("-i", "--stepbytes", help="Bytes between sizes, instead of a factor.")
    ] = None,
    iterations: Annotated[int, typer.Option("-n", "--iters", min=1, help="Calls that are timed.")] = 20,
    warmup: Annotated[int, typer.Option("-w", "--warmup_iters", min=0, help="Calls before those.")] = 5,
    dtype: Annotated[
        str, typer.Option("-d", "--datatype", help="float, bfloat16, half, int32, ...")
    ] = "float",
    redop: Annotated[str, typer.Option("-o", "--op", help="sum, prod, min, max or avg.")] = "sum",
    root: Annotated[int, typer.Option("-r", "--root", min=0, help="Of collectives that have one.")] = 0,
    check: Annotated[int, typer.Option("-c", "--check", min=0, max=1, help="1: compare every element.")] = 1,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    nproc: Annotated[int | None, typer.Option("--nproc", help="Ranks: processes of this host.")] = None,
    backend: Annotated[str | None, typer.Option("--backend", help="conccl, gloo or nccl.")] = None,
    transport: Annotated[str | None, typer.Option("--transport", help="host, peer or nccl.")] = None,
    timeout: Annotated[
        float, typer.Option("-T", "--timeout", min=0.1, help="Seconds that a call may take.")
    ] = 60.0,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Time a collective over a range of sizes and check every element of what it gives."""
    from conccl.bench.collectives import MEASURED, sizes  # noqa: PLC0415
    from conccl.collectives.layout import REDUCING, ROOTED  # noqa: PLC0415
    from conccl.core.units import parse_size  # noqa: PLC0415
    from conccl.integrations.collective_bench.asked import BenchRequest, settled  # noqa: PLC0415

    name = _OTHER_NAMES.get(collective, collective)
    if name not in MEASURED:
        raise UnknownNameError(kind="collective", name=collective, known=map(str, MEASURED))
    kind = CollectiveKind(name)
    spread = tuple(
        sizes(
            least=parse_size(least),
            most=parse_size(most),
            factor=factor,
            step=parse_size(step) if step is not None else None,
        )
    )
    chosen, ranks = settled(device=device, backend=backend, transport=transport, ranks=nproc)
    from conccl.integrations.collective_bench.calls import REDOPS  # noqa: PLC0415 (imports torch)
    from conccl.integrations.collective_bench.data import dtype_of  # noqa: PLC0415

    dtype_of(dtype)
    if redop not in REDOPS:
        raise UnknownNameError(kind="reduction", name=redop, known=REDOPS)
    if kind in ROOTED and root >= ranks:
        raise InputError(f"--root {root} among {ranks} ranks; they are counted from 0.")
    request = BenchRequest(
        kind=kind,
        sizes=spread,
        ranks=ranks,
        backend=chosen,
        device=device,
        dtype=dtype,
        redop=redop if kind in REDUCING else "",
        root=root if kind in ROOTED else 0,
        iterations=iterations,
        warmup=warmup,
        check=bool(check),
        timeout_s=timeout,
    )
    rows, problem = _measured(request, form)
    if problem:
        say(f"conccl: {problem}")
        raise typer.Exit(2)
    if any(row.nwrong for row in rows):
        raise typer.Exit(1)


def _measured(request: BenchRequest, form: Format) -> tuple[list[CollectiveRow], str]:
    """The rows, printed as they come; and what ended the sweep before its time."""
    from conccl.bench.collectives import CollectiveRow, formula  # noqa: PLC0415
    from conccl.integrations.collective_bench.measure import measured  # noqa: PLC0415
    from conccl.report.collectives import footer_lines, header_lines, row_line  # noqa: PLC0415

    began = datetime.now(UTC)
    rows: list[CollectiveRow] = []
    devices: list[dict[str, Any]] = []
    problem = ""
    table = form is Format.TABLE
    if table:
        _print(f"# conccl bench {request.kind}: {request.ranks} ranks, {request.backend}, {request.device}")
        _print(f"# {formula(request.kind, request.ranks)}")
    try:
        for found in measured(request):
            if isinstance(found, CollectiveRow):
                rows.append(found)
                if table:
                    _print(row_line(found))
                continue
            devices = [
                {"rank": rank, "pid": one.pid, "hostname": platform.node(), "device": one.device}
                for rank, one in enumerate(found)
            ]
            if table:
                for one in devices:
                    _print(f"#  Rank {one['rank']:2} Pid {one['pid']} on {one['hostname']} {one['device']}")
                _print(*header_lines())
    except ConcclError as error:
        problem = str(error)
    if table:
        _print(*footer_lines(rows), *([f"# ended before its time: {problem}"] if problem else []))
        for how in dict.fromkeys(f"# {row.nbytes} B by {row.how}" for row in rows if row.how):
            _print(how)
    else:
        write_json(_document(request, rows, devices, began, problem))
    return rows, problem


def _document(
    request: BenchRequest,
    rows: list[CollectiveRow],
    devices: list[dict[str, Any]],
    began: datetime,
    problem: str,
) -> dict[str, Any]:
    import conccl  # noqa: PLC0415
    from conccl.bench.collectives import average_bus_bandwidth, formula  # noqa: PLC0415
    from conccl.report.collectives import result  # noqa: PLC0415

    mean = average_bus_bandwidth(rows)
    return {
        "schema": "conccl.bench/1",
        "executor": "gpu" if request.device == "cuda" else "cpu",
        "device": devices[0]["device"] if devices else request.device,
        "version": conccl.__version__,
        "start_time": began.isoformat(),
        "args": sys.argv[1:],
        "env": {name: value for name, value in os.environ.items() if name.startswith("NCCL_")},
        "config": {
            "collective": str(request.kind),
            "backend": request.backend,
            "nproc": request.ranks,
            "minimum_bytes": request.sizes[0],
            "maximum_bytes": request.sizes[-1],
            "warmup_iters": request.warmup,
            "iterations": request.iterations,
            "validation": request.check,
            "timeout": request.timeout_s,
        },
        "devices": devices,
        "busbw_formula": formula(request.kind, request.ranks),
        "results": [result(row) for row in rows],
        "out_of_bounds": sum(row.nwrong for row in rows),
        "average_bus_bw": None if mean is None else mean / 1e9,
        "error": problem or None,
        "end_time": datetime.now(UTC).isoformat(),
    }


def _print(*lines: str) -> None:
    with standard_output() as out:
        out.write("".join(f"{line}\n" for line in lines))
