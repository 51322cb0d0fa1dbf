"""The collectives: what each moved, how long it waited and transferred, and at which bandwidth."""

from __future__ import annotations

from conccl.core.units import format_bandwidth, format_bytes
from conccl.report.blocks import Block, Cell, Column, Note, Notes, Section
from conccl.report.names import short, shown
from conccl.report.runs import Run
from conccl.report.sections.cells import (
    LONGEST_FULL,
    count_cell,
    name_cell,
    number_cell,
    table_of_runs,
    time_cell,
)
from conccl.traces.findings import CollectiveSummary, Straggler

MOST_ROWS = 500

_RULE = (
    "One row a kind, group and size; time is each rank's summed kernel time, mean over ranks. Transfer counts"
    " a matched call with its shortest rank, wait is the rest. algbw and busbw are on the transfer, as"
    " nccl-tests defines them. Skew: last start minus first start, median over matched calls."
)

_COLUMNS = (
    Column(label="Collective"),
    Column(label="Group"),
    Column(label="Ranks", numeric=True),
    Column(label="Size", numeric=True, help="Bytes of one call, as nccl-tests counts them"),
    Column(label="Calls", numeric=True, help="Kernels on all ranks together"),
    Column(label="Matched", numeric=True, help="Calls found on all ranks of the group that have a trace"),
    Column(label="Time", numeric=True),
    Column(label="Wait", numeric=True),
    Column(label="Transfer", numeric=True),
    Column(label="Skew", numeric=True),
    Column(label="Last rank", numeric=True, help="The rank that arrived last most often"),
    Column(label="algbw", numeric=True),
    Column(label="busbw", numeric=True),
    Column(label="CTAs", numeric=True, help="SMs taken at most"),
    Column(label="Kernel"),
)


def collectives(runs: tuple[Run, ...], /) -> Section:
    """All collectives of all runs in one table."""
    rows = [(run, _row(collective)) for run in runs for collective in run.analysis.collectives]
    table: Block = table_of_runs(
        rows, title="By kind, group and size", rule=_RULE, columns=_COLUMNS, most=MOST_ROWS, visible=15
    )
    none = Notes(notes=(Note(level="info", title="There is no collective in these traces."),))
    return Section(
        id="collectives",
        title="Collectives",
        lead="What each collective cost, and how much of that was waiting for other ranks.",
        blocks=(table if rows else none, *_stragglers(runs)),
    )


def _stragglers(runs: tuple[Run, ...]) -> tuple[Block, ...]:
    """The ranks that others waited for, where collectives could be matched."""
    rows = [(run, _straggler(entry)) for run in runs for entry in run.analysis.stragglers]
    if not rows:
        return ()
    table = table_of_runs(
        rows,
        title="Ranks that others waited for",
        rule="Caused: what the other ranks waited for this one, their mean, summed over the calls at which it"
        " arrived last.",
        columns=(
            Column(label="Rank", numeric=True),
            Column(label="Caused", numeric=True),
            Column(label="Arrived last", numeric=True, help="Matched calls at which it arrived last"),
            Column(label="Of", numeric=True, help="Matched calls that it took part in"),
        ),
        most=MOST_ROWS,
        visible=8,
    )
    return (table,)


def _straggler(entry: Straggler) -> tuple[Cell, ...]:
    return (
        number_cell(entry.rank),
        time_cell(entry.caused_ns),
        count_cell(entry.last),
        count_cell(entry.matched),
    )


def _row(collective: CollectiveSummary) -> tuple[Cell, ...]:
    size = "-" if collective.nbytes is None else format_bytes(collective.nbytes)
    return (
        Cell(text=collective.kind or "unknown kind", kind="communication"),
        Cell(
            text=short(collective.group or "-", width=24), full=shown(collective.group or "")[:LONGEST_FULL]
        ),
        number_cell(collective.ranks),
        Cell(text=size, value=collective.nbytes),
        count_cell(collective.calls),
        count_cell(collective.matched),
        time_cell(collective.duration_ns),
        time_cell(collective.wait_ns),
        time_cell(collective.transfer_ns),
        time_cell(collective.skew_ns),
        number_cell(collective.last_rank),
        _bandwidth(collective.algbw),
        _bandwidth(collective.busbw),
        count_cell(collective.ctas),
        name_cell(short(collective.name, width=44), full=collective.name),
    )


def _bandwidth(bandwidth: float | None) -> Cell:
    return Cell(text="-" if bandwidth is None else format_bandwidth(bandwidth), value=bandwidth)
