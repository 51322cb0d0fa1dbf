"""What was sampled, for the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conccl.core.units import format_ns
from conccl.report.names import short, shown
from conccl.sampling.kernels import KernelSample
from conccl.sampling.seqpoint import Projection
from conccl.sampling.study import Study

MOST_ROWS = 30

NAME_WIDTH = 40
"""Of a kernel's name, so that the figures beside it fit into 80 columns."""


def render_iterations(study: Study, /, *, baselines: bool) -> RenderableType:
    """The chosen iterations, what they project, and other rules where asked for."""
    selection = study.selection
    points = Table(box=box.SIMPLE, title_justify="left")
    for column in ("length", "iteration", "stands for"):
        points.add_column(column, justify="right")
    for point in selection.seqpoints[:MOST_ROWS]:
        points.add_row("x".join(map(str, point.length)), str(point.iteration), str(point.weight))
    if len(selection.seqpoints) > MOST_ROWS:
        points.add_row("...", f"{len(selection.seqpoints) - MOST_ROWS} more", "")
    parts: list[RenderableType] = [
        Text(
            f"{len(selection.seqpoints)} of {selection.iterations} iterations stand for the run"
            f" ({selection.lengths} lengths, chosen by {shown(study.statistic)})"
        ),
        points,
        _projections([(p.statistic, p) for p in selection.projections], "statistic"),
    ]
    if baselines:
        parts.append(_projections([(rule.value, p) for rule, p in study.baselines], "other rule"))
    return Group(*parts)


def render_kernels(sample: KernelSample, /) -> RenderableType:
    """The chosen kernels by the time they stand for, and what they project."""
    table = Table(box=box.SIMPLE)
    table.add_column("kernel", no_wrap=True)
    for column in ("duration", "stands for", "share"):
        table.add_column(column, justify="right", no_wrap=True)
    order = sorted(sample.points, key=lambda point: -point.weight * point.duration_ns)
    for point in order[:MOST_ROWS]:
        share = point.weight * point.duration_ns / max(1, sample.projected_ns)
        name = Text(short(point.name, width=NAME_WIDTH))
        table.add_row(name, format_ns(point.duration_ns), str(point.weight), f"{100 * share:.1f} %")
    if len(order) > MOST_ROWS:
        table.add_row(f"... and {len(order) - MOST_ROWS} more", "", "", "")
    error = sample.error_percent
    return Group(
        f"{len(sample.points)} of {sample.kernels} kernels stand for all (1 in {sample.reduction:.0f})",
        table,
        f"projected {format_ns(sample.projected_ns)}, actual {format_ns(sample.actual_ns)},"
        f" error {'-' if error is None else f'{error:.2f} %'},"
        f" 95 % interval {sample.interval_percent:.1f} %",
    )


def _projections(rows: list[tuple[str, Projection]], heading: str) -> Table:
    table = Table(box=box.SIMPLE)
    table.add_column(heading)
    for column in ("projected", "actual", "error"):
        table.add_column(column, justify="right")
    for name, projection in rows:
        error = projection.error_percent
        table.add_row(
            Text(shown(name)),
            f"{projection.projected:,.6g}",
            "-" if projection.actual is None else f"{projection.actual:,.6g}",
            "-" if error is None else f"{error:.3f} %",
        )
    return table
