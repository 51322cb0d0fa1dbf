"""Cells and columns that several tables share."""

from __future__ import annotations

from collections.abc import Iterable

from conccl.core.metrics import Overlap
from conccl.core.units import format_share
from conccl.report.blocks import Cell, Column, DataTable
from conccl.report.names import shown
from conccl.report.runs import Run
from conccl.report.texts import fraction_text, range_text, ratio_text, time_text
from conccl.traces.findings import OverlapEstimate, OverlappedRegion

_NOTHING = frozenset({"", "-"})

LONGEST_FULL = 1000
"""Characters of a whole name behind a shortened one."""


def time_cell(time_ns: int | None, /) -> Cell:
    """A duration that sorts."""
    return Cell(text=time_text(time_ns), value=time_ns)


def count_cell(count: int | None, /) -> Cell:
    """A count that sorts."""
    return Cell(text="-" if count is None else f"{count:,}", value=count)


def number_cell(number: int | None, /) -> Cell:
    """A rank's or step's number: it names, so it has no separators."""
    return Cell(text="-" if number is None else str(number), value=number)


def share_cell(share: float | None, /) -> Cell:
    """A share that sorts."""
    return Cell(text=format_share(share), value=share)


def ratio_cell(ratio: float | None, /) -> Cell:
    """A speedup or slowdown that sorts."""
    return Cell(text=ratio_text(ratio), value=ratio)


def fraction_cell(known: OverlapEstimate | OverlappedRegion, /) -> Cell:
    """The fraction of ideal, marked where it is predicted; or the word for why there is none."""
    overlap = known.overlap if isinstance(known, OverlapEstimate) else known
    span = range_text(known) if isinstance(known, OverlapEstimate) else ""
    return Cell(
        text=fraction_text(known),
        value=None if overlap is None else overlap.fraction_of_ideal,
        full=f"predicted: {span}" if span else "",
    )


def speedup_cell(overlap: Overlap | OverlappedRegion | None, /) -> Cell:
    """The speedup over serial execution."""
    return ratio_cell(None if overlap is None else overlap.speedup)


def ideal_cell(overlap: Overlap | None, /) -> Cell:
    """The speedup that ideal overlap would have."""
    return ratio_cell(None if overlap is None else overlap.ideal_speedup)


def name_cell(text: str, /, *, full: str, kind: str = "") -> Cell:
    """A name from a trace, shortened; the whole of it where one points."""
    whole = shown(full)
    return Cell(text=text, full=whole[:LONGEST_FULL], kind=kind, code=True)


def table_of_runs(
    rows: Iterable[tuple[Run, tuple[Cell, ...]]],
    /,
    *,
    title: str,
    rule: str,
    columns: tuple[Column, ...],
    most: int,
    visible: int = 12,
) -> DataTable:
    """A table of rows of several runs, at most so many; a column in which nothing stands is left out."""
    every = list(rows)
    shown_rows = [(Cell(text=run.label), *row) for run, row in every[:most]]
    columns = (Column(label="Run"), *columns)
    one_rank = all(len(run.analysis.ranks) == 1 for run, _ in every)
    used = [
        place
        for place, column in enumerate(columns)
        if not (column.of_rank and one_rank)
        and (column.always or any(row[place].text not in _NOTHING for row in shown_rows))
    ]
    return DataTable(
        title=title,
        rule=rule,
        columns=tuple(columns[place] for place in used),
        rows=tuple(tuple(row[place] for place in used) for row in shown_rows),
        left_out=max(0, len(every) - most),
        visible=visible,
    )
