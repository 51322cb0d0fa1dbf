"""Overlapped regions and exposed communication: the places where time was lost."""

from __future__ import annotations

from conccl.report.blocks import Block, Cell, Column, Note, Notes, Section
from conccl.report.names import short, shown
from conccl.report.runs import Run
from conccl.report.sections.cells import (
    LONGEST_FULL,
    count_cell,
    fraction_cell,
    ideal_cell,
    name_cell,
    number_cell,
    speedup_cell,
    table_of_runs,
    time_cell,
)
from conccl.traces.findings import ExposedCommunication, OverlappedRegion

MOST_ROWS = 300

_REGION_RULE = (
    "Stretches in which compute and communication ran together, those of the same longest kernels as one row."
    " Cost is each one's length minus the longer side's isolated time, summed; unknown where a kernel has no"
    " isolated time. Step and start are those of the costliest."
)
_EXPOSED_RULE = (
    "Communication with no compute beside it, always between the same two compute kernels; step and start are"
    " those of its longest stretch. The candidate is a kernel nearby, by launch and stream order; that it"
    " does not depend on the communication is not proved."
)


def regions(runs: tuple[Run, ...], /) -> Section:
    """What overlapped badly, then what did not overlap."""
    overlapped = [(run, _region(region)) for run in runs for region in run.analysis.regions]
    exposed = [(run, _exposed(entry)) for run in runs for entry in run.analysis.exposed]
    return Section(
        id="regions",
        title="Where it was lost",
        lead="The overlaps that cost most, and the communication that nothing covered.",
        blocks=(
            _table("Overlapped regions", _REGION_RULE, _REGION_COLUMNS, overlapped),
            _table("Exposed communication", _EXPOSED_RULE, _EXPOSED_COLUMNS, exposed),
        ),
    )


_REGION_COLUMNS = (
    Column(label="Cost", numeric=True),
    Column(label="Stretches", numeric=True),
    Column(label="Length", numeric=True, help="Of all these stretches"),
    Column(label="Fraction of ideal", numeric=True),
    Column(label="Speedup", numeric=True),
    Column(label="Ideal speedup", numeric=True),
    Column(label="Isolated times", help="measured in the trace, predicted, or unknown"),
    Column(label="Rank", numeric=True),
    Column(label="Step", numeric=True),
    Column(label="Start", numeric=True, help="From the start of the rank's window"),
    Column(label="Communication"),
    Column(label="Compute"),
)
_EXPOSED_COLUMNS = (
    Column(label="Exposed", numeric=True, help="Over all calls between these two kernels"),
    Column(label="Calls", numeric=True),
    Column(label="Longest", numeric=True, help="The longest exposed stretch"),
    Column(label="Communication"),
    Column(label="Rank", numeric=True),
    Column(label="Step", numeric=True),
    Column(label="Start", numeric=True, help="From the start of the rank's window"),
    Column(label="After"),
    Column(label="Before"),
    Column(label="Might be covered by"),
    Column(label="Lasting", numeric=True),
    Column(label="Evidence", help="What the trace shows of the candidate; independence is not proved"),
)


def _table(
    title: str, rule: str, columns: tuple[Column, ...], rows: list[tuple[Run, tuple[Cell, ...]]]
) -> Block:
    if not rows:
        return Notes(title=title, rule=rule, notes=(Note(level="info", title="There is none."),))
    return table_of_runs(rows, title=title, rule=rule, columns=columns, most=MOST_ROWS, visible=10)


def _region(region: OverlappedRegion) -> tuple[Cell, ...]:
    overlap = region.overlap.overlap
    return (
        time_cell(region.cost_ns),
        count_cell(region.count),
        time_cell(region.concurrent_ns),
        fraction_cell(overlap),
        speedup_cell(overlap),
        ideal_cell(overlap),
        Cell(text=region.overlap.source),
        number_cell(region.rank),
        number_cell(region.step),
        time_cell(region.start_ns),
        _names(region.communication, kind="communication"),
        _names(region.compute, kind="compute"),
    )


def _exposed(entry: ExposedCommunication) -> tuple[Cell, ...]:
    return (
        time_cell(entry.exposed_ns),
        count_cell(entry.calls),
        time_cell(entry.stretch_ns),
        _names((entry.name,), kind="communication"),
        number_cell(entry.rank),
        number_cell(entry.step),
        time_cell(entry.start_ns),
        _names((entry.before,) if entry.before else (), kind="compute"),
        _names((entry.after,) if entry.after else (), kind="compute"),
        _names((entry.candidate,) if entry.candidate else (), kind="compute"),
        time_cell(entry.candidate_ns),
        Cell(text=short(entry.evidence or "", width=60), full=shown(entry.evidence or "")[:LONGEST_FULL]),
    )


def _names(names: tuple[str, ...], *, kind: str) -> Cell:
    """The first name and how many follow; all of them where one points."""
    if not names:
        return Cell(text="-")
    more = f" + {len(names) - 1}" if len(names) > 1 else ""
    return name_cell(short(names[0], width=40) + more, full=", ".join(names[:20]), kind=kind)
