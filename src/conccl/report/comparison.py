"""Several analyses side by side in a terminal: the page's headline figures, a column a run."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from conccl.advise.analysis import Analysis
from conccl.report.blocks import Figures, Gauge, Gauges
from conccl.report.names import shown
from conccl.report.runs import runs_of
from conccl.report.sections.headline import headline


def render_comparison(analyses: Mapping[str, Analysis], /) -> RenderableType:
    """One line a headline figure, one column a run."""
    runs = runs_of(analyses)
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("")
    for label in analyses:
        table.add_column(Text(shown(label)), justify="right")
    for title, rows in _lines(headline(runs).blocks):
        table.add_row(Text(title), *(Text(row.text, style="bold") for row in rows))
    return table


def _lines(blocks: tuple[object, ...]) -> list[tuple[str, tuple[Gauge, ...]]]:
    lines: list[tuple[str, tuple[Gauge, ...]]] = []
    for block in blocks:
        if isinstance(block, Gauges):
            lines.append((block.title, block.rows))
        elif isinstance(block, Figures):
            lines += [(figure.title, figure.rows) for figure in block.figures]
    return lines
