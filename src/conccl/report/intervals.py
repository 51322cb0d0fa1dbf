"""Simulation points of a program, for the terminal."""

from __future__ import annotations

import itertools
import string
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from conccl.core.units import format_bytes, format_ns
from conccl.report.names import shown
from conccl.sampling.intervals.markers import Marker
from conccl.sampling.intervals.points import Point, Sample

SHOWN = ("cycles", "instructions", "l1d_misses", "l2_misses", "branch_misses")
STRIP = 72
"""Characters that the whole run is drawn with."""


def render_intervals(sample: Sample, /) -> RenderableType:
    """The run as a strip of groups, the points, what they project, and what it took to find them."""
    run = f"the run of {shown(Path(sample.argv[0]).name)}" if sample.argv else "the run"
    took = ", ".join(
        f"{stage.name} {'kept' if stage.resumed else format_ns(stage.wall_ns)}" for stage in sample.stages
    )
    parts: list[RenderableType] = [
        f"{len(sample.points)} of {len(sample.phases)} intervals stand for {run}",
        f"\n{_strip(sample)}",
        _points(sample),
    ]
    if sample.projected is not None:
        values = ", ".join(f"{sample.projected[name]:,.0f} {name.replace('_', ' ')}" for name in SHOWN)
        parts.append(f"projected: {values}")
    parts.append(f"took: {took}; {format_bytes(sample.nbytes)} kept")
    return Group(*parts)


def _points(sample: Sample) -> Table:
    detailed = any(point.counters for point in sample.points)
    marked = any(point.start for point in sample.points)
    table = Table(box=box.SIMPLE)
    table.add_column("group")
    columns = ["interval", "weight", *(["instructions", "cycles"] if detailed else [])]
    for column in columns:
        table.add_column(column, justify="right")
    if marked:
        table.add_column("begins at", overflow="fold")
    for point in sample.points:
        cells = [_letter(point.cluster), str(point.interval), f"{100 * point.weight:.2f} %"]
        if point.counters is not None:
            cells += [f"{point.counters['instructions']:,}", f"{point.counters['cycles']:,}"]
        table.add_row(*cells, *([_place(point)] if marked else []))
    return table


def _strip(sample: Sample) -> str:
    """A letter for each 72nd of the run: the group that most of it belongs to."""
    weights: list[dict[int, float]] = [{} for _ in range(STRIP)]
    for end, share, group in zip(
        itertools.accumulate(sample.shares), sample.shares, sample.phases, strict=True
    ):
        first, last = (end - share) * STRIP, end * STRIP
        for column in range(int(first), min(int(last) + 1, STRIP)):
            overlap = min(last, column + 1) - max(first, column)
            weights[column][group] = weights[column].get(group, 0.0) + overlap
    return "".join(
        _letter(max(column, key=lambda group: column[group])) if column else " " for column in weights
    )


def _letter(group: int) -> str:
    letters = string.ascii_lowercase + string.ascii_uppercase
    return letters[group % len(letters)]


def _place(point: Point) -> str:
    marker: Marker | None = point.start
    if marker is None:
        return "the start" if point.interval == 0 else "-"
    return f"{shown(Path(marker.site.path).name)}+{marker.site.pc:#x} x {marker.count:,}"
