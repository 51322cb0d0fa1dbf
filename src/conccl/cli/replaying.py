"""The part of `conccl sample iterations` that feeds chosen iterations to the simulator."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from conccl.cli.output import is_watched, say
from conccl.cli.simulate_code import is_code
from conccl.cli.spread import workload_of
from conccl.core.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from conccl.bench.replay import Simulate
    from conccl.bench.sweep import Variation
    from conccl.core.hardware import Device
    from conccl.sampling.seqpoint import Length
    from conccl.workloads.layers import Batch


def variations_of(
    devices: str, /, *, settings: Sequence[str] | None, vary: Sequence[str] | None
) -> tuple[Variation, ...]:
    """Every device of a comma-separated list, with what was set, in every variation."""
    from conccl.bench.sweep import variations  # noqa: PLC0415
    from conccl.costs.catalogue import load_device, with_fields  # noqa: PLC0415
    from conccl.costs.fields import parse_settings, parse_variations  # noqa: PLC0415

    names = [name.strip() for name in devices.split(",") if name.strip()]
    if not names:
        raise InputError("--replay needs a device. Give --device NAME, or several as a,b.")
    changed, axes = parse_settings(tuple(settings or ())), parse_variations(tuple(vary or ()))
    return tuple(each for name in names for each in variations(with_fields(load_device(name), changed), axes))


def simulator(target: str, arguments: Sequence[str], /, *, names: Sequence[str], **spread: Any) -> Simulate:
    """Times of iterations of a named model, spread as asked for, or of ``file.py:function``."""
    found: dict[tuple[Length, int], int] = {}
    once = _code(target, arguments, names) if is_code(target) else _model(target, names, **spread)
    if arguments and not is_code(target):
        raise InputError(f"{' '.join(arguments)!r}: only file.py:function takes arguments. Leave them out.")

    def remembered(length: Length, device: Device) -> int:
        key = (length, id(device))
        if key not in found:
            found[key] = once(length, device)
        return found[key]

    return remembered


def _model(target: str, names: Sequence[str], **spread: Any) -> Simulate:
    from dataclasses import replace  # noqa: PLC0415

    from conccl.bench.iteration import simulate_iteration  # noqa: PLC0415
    from conccl.bench.request import batch_time, is_served  # noqa: PLC0415
    from conccl.costs.catalogue import system_of  # noqa: PLC0415
    from conccl.sim.executor import SimExecutor  # noqa: PLC0415
    from conccl.workloads.layers import Phase  # noqa: PLC0415
    from conccl.workloads.memory import require_memory  # noqa: PLC0415

    workload = workload_of(target, **spread)
    phase = Phase.PREFILL if is_served(names) else workload.batch.phase
    held = replace(workload, batch=replace(workload.batch, phase=phase))

    def simulate(length: Length, device: Device) -> int:
        require_memory(held, device)
        executor = SimExecutor(system=system_of(device, gpus=workload.parallelism.gpus))

        def price(batch: Batch) -> int:
            one = replace(workload, batch=batch)
            return simulate_iteration(one, executor=executor, device=device).iteration_ns

        return batch_time(names, batch=workload.batch, price=price)(length)

    batch_time(
        names, batch=workload.batch, price=lambda batch: batch.length
    )  # what cannot be is told at once
    return simulate


def _code(target: str, arguments: Sequence[str], names: Sequence[str]) -> Simulate:
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError(module="PyTorch", extra="torch")
    from conccl.bench.step import simulate_step  # noqa: PLC0415
    from conccl.workloads.capture.target import capture_target  # noqa: PLC0415

    told: set[str] = set()

    def simulate(length: Length, device: Device) -> int:
        captured = capture_target(target, _filled(arguments, names, length), device=device)
        for warning in captured.warnings:
            if warning not in told:
                told.add(warning)
                say(f"conccl: warning: {warning}")
        return simulate_step(captured, device=device).iteration_ns

    return simulate


def _filled(arguments: Sequence[str], names: Sequence[str], length: Length) -> list[str]:
    """The function's arguments: lengths stand where ``{NAME}`` does, or behind the others."""
    values = {f"{{{name}}}": str(size) for name, size in zip(names, length, strict=True)}
    if not any(mark in argument for argument in arguments for mark in values):
        return [*arguments, *values.values()]
    filled = []
    for argument in arguments:
        for mark, size in values.items():
            argument = argument.replace(mark, size)  # noqa: PLW2901
        filled.append(argument)
    return filled


@contextlib.contextmanager
def counted(simulate: Simulate, /, *, total: int) -> Iterator[Simulate]:
    """The same, with a bar on standard error where that is a terminal."""
    if not is_watched():
        yield simulate
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("simulated iterations", total=total)
        yield _advancing(simulate, lambda: progress.advance(bar))


def _advancing(simulate: Simulate, done: Callable[[], None]) -> Simulate:
    def each(length: Length, device: Device) -> int:
        time_ns = simulate(length, device)
        done()
        return time_ns

    return each
