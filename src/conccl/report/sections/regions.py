"""Overlapped regions and exposed communication: the places where time was lost."""

from __future__ import annotations

from conccl.advise.costs import cover_ns
from conccl.report.blocks import Block, Cell, Column, Note, Notes, Section
from conccl.report.names import short, shown
from conccl.report.runs import Run
from conccl.report.sections.cells import (
    LONGEST_FULL,
    count_cell,
    fraction_cell,
    name_cell,
    number_cell,
    speedup_cell,
    table_of_runs,
    time_cell,
)
from conccl.report.texts import PREDICTED, time_text
from conccl.traces.findings import ExposedCommunication, OverlapCost, OverlappedRegion

MOST_ROWS = 300

_COST_RULE = (
    "Exposed communication as far as its steps have compute to cover it and it is not known to be waiting,"
    " and contention, in one list; the same on several ranks is one row, its cost the mean over all ranks."
)
_REGION_RULE = (
    "Stretches in which compute and communication ran together, those of the same longest kernels as one row."
    " Lost is what contention kept a side from doing while both ran; the cost is the loss of the side that is"
    " busy longer in the whole window; unknown where a kernel has no isolated time. Step and start are those"
    " of the costliest."
)
_EXPOSED_RULE = (
    "Communication with no compute beside it, always between the same two compute kernels; step and start are"
    " those of its longest stretch. The candidate is a kernel nearby, by launch and stream order; that it"
    " does not depend on the communication is not proved."
)


def regions(runs: tuple[Run, ...], /) -> Section:
    """What overlapped badly, then what did not overlap."""
    costs = [(run, _cost(cost)) for run in runs for cost in run.analysis.costs]
    overlapped = [(run, _region(region)) for run in runs for region in run.analysis.regions]
    exposed = [(run, _exposed(entry)) for run in runs for entry in run.analysis.exposed]
    return Section(
        id="regions",
        title="Where it was lost",
        lead="The overlaps that cost most, and the communication that nothing covered.",
        blocks=(
            _table("What costs most", _COST_RULE, _COST_COLUMNS, costs),
            _table("Overlapped regions", _REGION_RULE, _REGION_COLUMNS, overlapped),
            _table("Exposed communication", _EXPOSED_RULE, _EXPOSED_COLUMNS, exposed),
        ),
    )


_COST_COLUMNS = (
    Column(label="Cost", numeric=True, help="A rank, on average"),
    Column(label="Kind", help="exposed: no compute beside it; contention: both sides slower together"),
    Column(label="Communication"),
    Column(label="Compute", help="The kernel beside it; where it is exposed, the one before it"),
    Column(label="Ranks", numeric=True, help="Ranks that have it", of_rank=True),
    Column(label="Worst rank", numeric=True, help="The rank that pays most", of_rank=True),
    Column(label="There", numeric=True, help="What it costs that rank", of_rank=True),
    Column(label="Step", numeric=True),
)
_REGION_COLUMNS = (
    Column(label="Cost", numeric=True, always=True),
    Column(label="Both", numeric=True, help="Time in which both ran, in all these stretches"),
    Column(label="Stretches", numeric=True),
    Column(label="Communication"),
    Column(label="Compute"),
    Column(label="Compute lost", numeric=True, help="Isolated time that was not done in them"),
    Column(label="Communication lost", numeric=True, help="Isolated time that was not done in them"),
    Column(label="Fraction of ideal", numeric=True),
    Column(label="Speedup", numeric=True, help="While both run; ideal is 2, both at full speed"),
    Column(label="Isolated times", help="measured in the trace, predicted, or unknown"),
    Column(label="Rank", numeric=True, of_rank=True),
    Column(label="Step", numeric=True),
    Column(label="Start", numeric=True, help="From the start of the rank's window"),
)
_EXPOSED_COLUMNS = (
    Column(label="Exposed", numeric=True, help="Over all calls between these two kernels"),
    Column(label="Waiting", numeric=True, help="At least this much of it waits for other ranks"),
    Column(label="Coverable", numeric=True, help="At most this much: its steps have no more compute alone"),
    Column(label="Calls", numeric=True),
    Column(label="Longest", numeric=True, help="The longest exposed stretch"),
    Column(label="Communication"),
    Column(label="After"),
    Column(label="Before"),
    Column(label="Rank", numeric=True, of_rank=True),
    Column(label="Step", numeric=True),
    Column(label="Start", numeric=True, help="From the start of the rank's window"),
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


def _cost(cost: OverlapCost) -> tuple[Cell, ...]:
    worst = cost.worst
    there = worst.cost_ns if isinstance(worst, OverlappedRegion) else cover_ns(worst)
    return (
        _cost_cell(cost.cost_ns, cost.uncertainty_ns, predicted=cost.source == "predicted"),
        Cell(text=cost.kind),
        _names((cost.communication,), kind="communication"),
        _names((cost.compute,) if cost.compute else (), kind="compute"),
        count_cell(cost.ranks),
        number_cell(worst.rank),
        time_cell(there),
        number_cell(worst.step),
    )


def _cost_cell(cost_ns: int | None, uncertainty_ns: int, /, *, predicted: bool) -> Cell:
    """A cost, marked with how far off it may be where it is predicted."""
    if not predicted or cost_ns is None:
        return time_cell(cost_ns)
    return Cell(
        text=f"{PREDICTED}{time_text(cost_ns)}",
        value=cost_ns,
        full=f"predicted, ± {time_text(uncertainty_ns)}",
    )


def _region(region: OverlappedRegion) -> tuple[Cell, ...]:
    return (
        _cost_cell(region.cost_ns, region.cost_uncertainty_ns, predicted=region.source == "predicted"),
        time_cell(region.concurrent_ns),
        count_cell(region.count),
        _names(region.communication, kind="communication"),
        _names(region.compute, kind="compute"),
        time_cell(region.compute_lost_ns),
        time_cell(region.communication_lost_ns),
        fraction_cell(region),
        speedup_cell(region),
        Cell(text=region.source),
        number_cell(region.rank),
        number_cell(region.step),
        time_cell(region.start_ns),
    )


def _exposed(entry: ExposedCommunication) -> tuple[Cell, ...]:
    return (
        time_cell(entry.exposed_ns),
        time_cell(entry.wait_ns),
        time_cell(entry.coverable_ns),
        count_cell(entry.calls),
        time_cell(entry.stretch_ns),
        _names((entry.name,), kind="communication"),
        _names((entry.before,) if entry.before else (), kind="compute"),
        _names((entry.after,) if entry.after else (), kind="compute"),
        number_cell(entry.rank),
        number_cell(entry.step),
        time_cell(entry.start_ns),
        _names((entry.candidate,) if entry.candidate else (), kind="compute"),
        time_cell(entry.candidate_ns),
        Cell(text=short(entry.evidence or "", width=60), full=shown(entry.evidence or "")[:LONGEST_FULL]),
    )


def _names(names: tuple[str, ...], *, kind: str) -> Cell:
    """The first name and how many follow; all of them where one points."""
    if not names:
        return Cell(text="-")
    more = f" + {len(names) - 1}" if len(names) > 1 else ""
    return name_cell(short(names[0], width=34) + more, full=", ".join(names[:20]), kind=kind)
