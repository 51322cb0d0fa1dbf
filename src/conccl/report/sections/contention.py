"""The slowdown plot: the same kernel alone and with the other side beside it."""

from __future__ import annotations

import math

from conccl.core.units import format_share
from conccl.report.blocks import (
    Block,
    Cell,
    Column,
    DataTable,
    Dumbbell,
    DumbbellGroup,
    Dumbbells,
    Note,
    Notes,
    Section,
    Tick,
)
from conccl.report.names import short, shown
from conccl.report.runs import Run
from conccl.report.sections.cells import (
    LONGEST_FULL,
    count_cell,
    name_cell,
    number_cell,
    ratio_cell,
    share_cell,
    table_of_runs,
    time_cell,
)
from conccl.report.texts import ratio_text, time_text
from conccl.traces.findings import Contention

MOST_PLOTTED = 12
MOST_ROWS = 400

_RULE = (
    "Kernels of the same name, grid, block and (where recorded) shapes, on one rank; without a rank:"
    " collectives matched over ranks, counted with their transfer. Dots: median duration with nothing of the"
    " other side beside them, and with any of it. Slowdown is what full overlap costs,"
    " partial overlap counted by its share; without an instance alone it is unknown. Logarithmic axis; most"
    " time lost first, each name where it lost most."
)

_COLUMNS = (
    Column(label="Kernel"),
    Column(label="Side", help="compute is slowed by communication, communication by compute"),
    Column(label="Rank", numeric=True, of_rank=True),
    Column(label="Slowdown", numeric=True),
    Column(label="Lost", numeric=True, help="Over all instances"),
    Column(label="Alone", numeric=True, help="Median duration with nothing of the other side beside it"),
    Column(label="Spread", numeric=True, help="Interquartile range over median, alone"),
    Column(label="Count", numeric=True, help="Instances alone"),
    Column(label="Overlapped", numeric=True, help="Median duration with any of the other side beside it"),
    Column(label="Spread", numeric=True, help="Interquartile range over median, overlapped"),
    Column(label="Count", numeric=True, help="Instances with any of the other side beside them"),
    Column(label="Covered", numeric=True, help="Share of their time in which the other side ran"),
    Column(label="CTAs", numeric=True, help="SMs that the communication takes at most"),
    Column(label="Alone, predicted", numeric=True, help="By the cost models, where no instance ran alone"),
    Column(label="Also waits", help="Waits for other ranks, so that more than contention is in its times"),
)


def contention(runs: tuple[Run, ...], /) -> Section:
    """The kernels that lost most, plotted; all of them in a table."""
    groups = tuple(group for run in runs if (group := _group(run)).rows)
    rows = [(run, _row(entry)) for run in runs for entry in run.analysis.contention]
    blocks: list[Block] = []
    if groups:
        blocks.append(
            Dumbbells(title="Alone and overlapped", rule=_RULE, groups=groups, ticks=_ticks(groups))
        )
    else:
        blocks.append(
            Notes(
                notes=(
                    Note(
                        level="info",
                        title="No slowdown is known: no kernel ran both alone and beside the other side.",
                    ),
                )
            )
        )
    if rows:
        blocks.append(_table(rows))
    return Section(
        id="contention",
        title="Contention",
        lead="What running together costs each kernel, measured inside the trace.",
        blocks=tuple(blocks),
    )


def _group(run: Run) -> DumbbellGroup:
    known = [c for c in run.analysis.contention if c.slowdown is not None and c.alone_ns and c.overlapped_ns]
    # A kernel that waits for other ranks is as long as they are late; what it lost to compute is not in that.
    known = [c for c in known if not c.waits or (c.excess_ns or 0) > 0]
    worst: dict[tuple[str, str], Contention] = {}
    for entry in known:
        worst.setdefault((entry.name, entry.side), entry)
    plotted = [*worst.values()][:MOST_PLOTTED]
    left_out = len(known) - len(plotted)
    return DumbbellGroup(
        label=run.label,
        rows=tuple(_dumbbell(entry, whose=_whose(run, entry)) for entry in plotted),
        note=f"{left_out} more stand in the table." if left_out > 0 else "",
    )


def _whose(run: Run, entry: Contention) -> str:
    """Which rank it is about, where there are several."""
    if len(run.analysis.ranks) == 1:
        return ""
    return "all ranks" if entry.rank is None else f"rank {entry.rank}"


def _dumbbell(entry: Contention, *, whose: str) -> Dumbbell:
    return Dumbbell(
        label=short(entry.name, width=40),
        full=shown(entry.name)[:LONGEST_FULL],
        kind=_kind(entry),
        alone=entry.alone_ns or 0,
        alone_text=time_text(entry.alone_ns),
        overlapped=entry.overlapped_ns,
        overlapped_text=time_text(entry.overlapped_ns),
        text=ratio_text(entry.slowdown),
        detail=", ".join(filter(None, [f"lost {time_text(entry.excess_ns)}", whose])),
    )


def _ticks(groups: tuple[DumbbellGroup, ...]) -> tuple[Tick, ...]:
    """Powers of ten around all values, with 2 and 5 between them where they are few."""
    values = [value for group in groups for row in group.rows for value in (row.alone, row.overlapped)]
    low, high = min(values), max(values)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    marks = [m * 10**power for power in range(first, last + 1) for m in (1, 2, 5)]
    below = max((mark for mark in marks if mark <= low), default=marks[0])
    above = min((mark for mark in marks if mark >= high and mark > below), default=marks[-1])
    kept = [mark for mark in marks if below <= mark <= above]
    if len(kept) > 8:
        kept = [m for m in kept if m in (below, above) or math.log10(m).is_integer()]
    return tuple(Tick(value=mark, label=time_text(mark)) for mark in kept)


def _table(rows: list[tuple[Run, tuple[Cell, ...]]]) -> DataTable:
    return table_of_runs(
        rows,
        title="All kernels that ran beside the other side",
        rule="Counts and spreads say how far a slowdown can be trusted.",
        columns=_COLUMNS,
        most=MOST_ROWS,
    )


def _row(entry: Contention) -> tuple[Cell, ...]:
    return (
        name_cell(short(entry.name, width=48), full=entry.name),
        Cell(text=entry.side, kind=_kind(entry)),
        number_cell(entry.rank),
        ratio_cell(entry.slowdown),
        time_cell(entry.excess_ns),
        time_cell(entry.alone_ns),
        share_cell(entry.alone_spread),
        count_cell(entry.alone_count),
        time_cell(entry.overlapped_ns),
        share_cell(entry.overlapped_spread),
        count_cell(entry.overlapped_count),
        share_cell(entry.overlapped_share),
        count_cell(entry.ctas),
        _predicted_cell(entry),
        Cell(text="yes" if entry.waits else ""),
    )


def _predicted_cell(entry: Contention) -> Cell:
    if entry.predicted_ns is None or entry.predicted_uncertainty is None:
        return Cell(text="-")
    return Cell(
        text=f"{time_text(entry.predicted_ns)} ± {format_share(entry.predicted_uncertainty)}",
        value=entry.predicted_ns,
    )


def _kind(entry: Contention) -> str:
    return "communication" if entry.side == "communication" else "compute"
