"""Simulated steps of captured code, for people and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conccl.bench.step import StepTime
from conccl.core.hardware import Device
from conccl.core.units import format_ns, format_share

NOTABLE = 0.001
"""Operators without a model are listed for people from this share on."""


def document(
    target: str, device: Device, step: StepTime, warnings: Sequence[str], /, *, gpus: int = 1
) -> dict[str, Any]:
    """The JSON of one simulated step; keys are part of the contract."""
    return {
        "executor": "sim",
        "device": device.name,
        "gpus": gpus,
        "target": target,
        "iteration_ns": step.iteration_ns,
        "kernel_ns": step.kernel_ns,
        "kernels": step.kernels,
        "exposed_communication_ns": step.exposed_communication_ns,
        "mfu": step.mfu,
        "unmodelled": [{"op": one.op, "share": one.share} for one in step.unmodelled],
        "warnings": list(warnings),
    }


def render_steps(
    target: str, found: Sequence[tuple[str, Device, StepTime]], /, *, gpus: int = 1
) -> RenderableType:
    """One row a device, and the operators of which only a bound is known."""
    several = ("exposed",) if gpus > 1 else ()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("device")
    for column in ("iteration", *several, "kernels", "kernel time", "MFU"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, device, step in found:
        table.add_row(
            name or device.name,
            format_ns(step.iteration_ns),
            *(format_share(step.exposed_communication_ns / step.iteration_ns) for _ in several),
            f"{step.kernels:,}",
            format_ns(step.kernel_ns),
            format_share(step.mfu),
        )
    notable = [one for one in found[0][2].unmodelled if one.share >= NOTABLE]
    listed = ", ".join(f"{one.op} ({format_share(one.share)})" for one in notable)
    # As it is: in ":train:" rich would see an emoji.
    where = f" on {gpus:,} GPUs" if several else ""
    parts: list[RenderableType] = [Text(f"{target}: one step{where} (simulated)"), table]
    if listed:
        parts.append(Text(f"Without a model, bounded by their bytes: {listed}"))
    return Group(*parts)
