"""`conccl sample kernels`: the few kernels that stand for all of a trace or of a simulated step."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conccl.cli.output import Format, say, write_json, write_table
from conccl.cli.simulate_code import is_code
from conccl.core.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from conccl.bench.few_kernels import Scaled
    from conccl.core.timeline import Times
    from conccl.sampling.kernels import KernelSample
    from conccl.traces.kernel_rows import KernelRows


def kernels(
    trace: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE...|FILE.py:FUNCTION [-- ARGS]",
            help="Profiler traces: files, folders or globs; or code, whose step is simulated.",
        ),
    ],
    rank: Annotated[
        int | None, typer.Option("--rank", help="The rank to look at; default: the first.")
    ] = None,
    error: Annotated[
        float,
        typer.Option("--error", help="Stop when the 95 % interval is within this, in percent."),
    ] = 1.0,
    most: Annotated[int | None, typer.Option("--most", help="Choose no more kernels than this.")] = None,
    *,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", help="Of code: where to choose, and where else to simulate the chosen, as a,b."
        ),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Simulate all kernels there too, to see how far off that is.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page: durations, the chosen, error by number.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Choose the few kernels that stand for all of a trace, with weights and a confidence interval."""
    if is_code(trace[0]):
        sample, scaled, known = _of_code(
            trace[0], trace[1:], device=device, error_percent=error, most=most, whole=whole
        )
        _print(sample, scaled, output=output, executor="sim", device=scaled[0].device)
        _write_page(html, sample, *known, source=f"{trace[0]} (simulated)")
        return
    if device is not None or whole:
        raise InputError("--device and --whole are for code (file.py:function). Leave them out.")
    rows, sample = _of_trace([Path(path) for path in trace], rank=rank, error_percent=error, most=most)
    _print(sample, (), output=output, executor="trace", device=rows.device)
    _write_page(html, sample, rows.names, rows.durations_ns, source=", ".join(trace))
    for warning in rows.warnings:
        say(f"conccl: rank {rows.rank}: {warning}")
    for problem in rows.problems:
        say(f"conccl: not read: {problem}")
    if rows.problems:
        raise typer.Exit(2)


def _of_trace(
    paths: list[Path], *, rank: int | None, error_percent: float, most: int | None
) -> tuple[KernelRows, KernelSample]:
    from conccl.sampling.kernels import sample_kernels  # noqa: PLC0415
    from conccl.traces.kernel_rows import kernel_rows  # noqa: PLC0415

    rows = kernel_rows(paths, rank=rank)
    if not rows.names:
        raise InputError(
            f"{', '.join(map(str, paths))}: no kernels. Give a trace that recorded GPU activity."
        )
    sample = sample_kernels(
        rows.kinds, rows.durations_ns, names=rows.names, error_percent=error_percent, most=most
    )
    return rows, sample


def _of_code(
    target: str,
    arguments: Sequence[str],
    /,
    *,
    device: str | None,
    error_percent: float,
    most: int | None,
    whole: bool,
) -> tuple[KernelSample, tuple[Scaled, ...], tuple[Sequence[str], Times]]:
    """Chosen on the first device, simulated on all; and what was chosen from."""
    names = [name.strip() for name in (device or "").split(",") if name.strip()]
    if not names:
        raise InputError("code needs a device to be simulated on. Give --device NAME, or several as a,b.")
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError(module="PyTorch", extra="torch")
    from conccl.bench.few_kernels import scaled, simulated_kernels  # noqa: PLC0415
    from conccl.costs.catalogue import load_device  # noqa: PLC0415
    from conccl.sampling.kernels import Grouping, sample_kernels  # noqa: PLC0415
    from conccl.workloads.capture.target import capture_target  # noqa: PLC0415

    sample, known, found = None, None, []
    for on in map(load_device, names):
        captured = capture_target(target, arguments, device=on)
        if sample is None:
            for warning in captured.warnings:
                say(f"conccl: warning: {warning}")
            if not captured.kernels:
                raise InputError(
                    f"{target} launches no kernels. Give a function that runs a step on the GPU."
                )
            known = kinds, durations = simulated_kernels(captured, device=on)
            grouping = Grouping.BY_NAME if len(names) > 1 else Grouping.FEWEST
            sample = sample_kernels(
                kinds, durations, error_percent=error_percent, most=most, grouping=grouping
            )
        one = scaled(captured, sample, device=on)
        if whole:
            everything = simulated_kernels(captured, device=on)[1]
            one = replace(one, actual_ns=int(everything.sum()))
        found.append(one)
    assert sample is not None, "there is a device"
    assert known is not None, "they come together"
    return sample, tuple(found), known


def _write_page(
    path: Path | None, sample: KernelSample, names: Sequence[str], durations_ns: Times, /, *, source: str
) -> None:
    if path is None:
        return
    from conccl.report.sampled import write_kernels_page  # noqa: PLC0415

    write_kernels_page(sample, names, durations_ns, path=path, source=source)
    say(f"wrote {path}")


def _print(
    sample: KernelSample,
    scaled: Sequence[Scaled],
    /,
    *,
    output: Format,
    executor: str,
    device: str | None,
) -> None:
    if output is Format.JSON:
        from conccl.report.few_kernels import scaled_document  # noqa: PLC0415
        from conccl.sampling.document import kernels_document  # noqa: PLC0415

        document: dict[str, Any] = kernels_document(sample, device=device, executor=executor)
        if scaled:
            document["scaled"] = scaled_document(scaled)
        write_json(document)
        return
    from conccl.report.sampling import render_kernels  # noqa: PLC0415

    parts = [render_kernels(sample)]
    if scaled:
        from conccl.report.few_kernels import render_scaled  # noqa: PLC0415

        parts.append(render_scaled(scaled))
    write_table(*parts)
