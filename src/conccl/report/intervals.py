"""Simulation points of a program, for the terminal."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from conccl.core.units import format_bytes, format_ns
from conccl.report.names import shown
from conccl.sampling.intervals.markers import Marker
from conccl.sampling.intervals.points import Sample

SHOWN = ("cycles", "instructions", "l1d_misses", "l2_misses", "branch_misses")


def render_intervals(sample: Sample, /) -> RenderableType:
    """The points in the order of the run, what they project, and what it took to find them."""
    table = Table(box=box.SIMPLE)
    for column in ("interval", "weight", "instructions", "cycles", "begins at"):
        table.add_column(column, justify="left" if column == "begins at" else "right", overflow="fold")
    for point in sample.points:
        cycles = point.counters["cycles"] if point.counters else None
        table.add_row(
            str(point.interval),
            f"{100 * point.weight:.2f} %",
            "-" if point.instructions is None else f"{point.instructions:,}",
            "-" if cycles is None else f"{cycles:,}",
            _place(point.start, interval=point.interval),
        )
    took = ", ".join(
        f"{stage.name} {'kept' if stage.resumed else format_ns(stage.wall_ns)}" for stage in sample.stages
    )
    parts: list[RenderableType] = [
        f"{len(sample.points)} of {len(sample.phases)} intervals stand for the run of "
        f"{shown(Path(sample.argv[0]).name)}",
        table,
    ]
    if sample.projected is not None:
        values = ", ".join(f"{sample.projected[name]:,.0f} {name.replace('_', ' ')}" for name in SHOWN)
        parts.append(f"projected: {values}")
    parts.append(f"took: {took}; {format_bytes(sample.nbytes)} kept")
    return Group(*parts)


def _place(marker: Marker | None, *, interval: int) -> str:
    if marker is None:
        return "start" if interval == 0 else "-"
    return f"{shown(Path(marker.site.path).name)}+{marker.site.pc:#x} x {marker.count:,}"
