"""Overlapped regions and exposed communication: the places where time was lost."""

from __future__ import annotations

from conccl.report.blocks import Block, Cell, Column, DataTable, Note, Notes, Section
from conccl.report.names import short
from conccl.report.runs import Run
from conccl.report.sections.breakdown import time_cell
from conccl.report.texts import fraction_text, ratio_text
from conccl.traces.findings import ExposedCommunication, OverlappedRegion

MOST_ROWS = 300

_REGION_RULE = (
    "A stretch in which compute and communication ran together. Cost is its length minus the longer side's"
    " isolated time; unknown where a kernel has no isolated time."
)
_EXPOSED_RULE = (
    "Communication with no compute beside it, between the compute kernels that ended before and started after it."
    " The candidate is a nearby kernel that does not wait for it and is long enough to matter."
)


def regions(runs: tuple[Run, ...], /) -> Section:
    """What overlapped badly, then what did not overlap."""
    labelled = len(runs) > 1
    overlapped = [
        _region(run, region, labelled=labelled) for run in runs for region in run.analysis.regions
    ]
    exposed = [_exposed(run, entry, labelled=labelled) for run in runs for entry in run.analysis.exposed]
    return Section(
        id="regions",
        title="Where it was lost",
        lead="The overlaps that cost most, and the communication that nothing covered.",
        blocks=(
            _table("Overlapped regions", _REGION_RULE, _REGION_COLUMNS, overlapped, labelled=labelled),
            _table("Exposed communication", _EXPOSED_RULE, _EXPOSED_COLUMNS, exposed, labelled=labelled),
        ),
    )


_REGION_COLUMNS = (
    Column(label="Cost", numeric=True),
    Column(label="Length", numeric=True),
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
    Column(label="Exposed", numeric=True),
    Column(label="Communication"),
    Column(label="Rank", numeric=True),
    Column(label="Step", numeric=True),
    Column(label="Start", numeric=True, help="From the start of the rank's window"),
    Column(label="After"),
    Column(label="Before"),
    Column(label="Could be covered by"),
    Column(label="Lasting", numeric=True),
)


def _table(
    title: str, rule: str, columns: tuple[Column, ...], rows: list[tuple[Cell, ...]], *, labelled: bool
) -> Block:
    if not rows:
        return Notes(title=title, rule=rule, notes=(Note(level="info", title="There is none."),))
    return DataTable(
        title=title,
        rule=rule,
        columns=((Column(label="Run"), *columns) if labelled else columns),
        rows=tuple(rows[:MOST_ROWS]),
        left_out=max(0, len(rows) - MOST_ROWS),
        visible=10,
    )


def _region(run: Run, region: OverlappedRegion, *, labelled: bool) -> tuple[Cell, ...]:
    overlap = region.overlap.overlap
    return (
        *((Cell(text=run.label),) if labelled else ()),
        time_cell(region.cost_ns),
        time_cell(region.concurrent_ns),
        Cell(text=fraction_text(overlap), value=overlap and overlap.fraction_of_ideal),
        Cell(text=ratio_text(overlap and overlap.speedup), value=overlap and overlap.speedup),
        Cell(text=ratio_text(overlap and overlap.ideal_speedup), value=overlap and overlap.ideal_speedup),
        Cell(text=region.overlap.source),
        Cell(text=str(region.rank), value=region.rank),
        _step(region.step),
        time_cell(region.start_ns),
        _names(region.communication, kind="communication"),
        _names(region.compute, kind="compute"),
    )


def _exposed(run: Run, entry: ExposedCommunication, *, labelled: bool) -> tuple[Cell, ...]:
    return (
        *((Cell(text=run.label),) if labelled else ()),
        time_cell(entry.exposed_ns),
        _names((entry.name,), kind="communication"),
        Cell(text=str(entry.rank), value=entry.rank),
        _step(entry.step),
        time_cell(entry.start_ns),
        _names((entry.before,) if entry.before else (), kind="compute"),
        _names((entry.after,) if entry.after else (), kind="compute"),
        _names((entry.candidate,) if entry.candidate else (), kind="compute"),
        time_cell(entry.candidate_ns),
    )


def _step(step: int | None) -> Cell:
    return Cell(text="-" if step is None else str(step), value=step)


def _names(names: tuple[str, ...], *, kind: str) -> Cell:
    """The first name and how many follow; all of them where one points."""
    if not names:
        return Cell(text="-")
    more = f" + {len(names) - 1}" if len(names) > 1 else ""
    return Cell(text=short(names[0], width=40) + more, full="\n".join(names[:20]), kind=kind, code=True)
