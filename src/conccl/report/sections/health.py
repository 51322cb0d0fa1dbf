"""What can be trusted: files that were not read, warnings, odd rows, kernels that no rule knows."""

from __future__ import annotations

from conccl.advise.analysis import RankAnalysis
from conccl.report.blocks import Block, Cell, Column, DataTable, Note, Notes, Section
from conccl.report.names import short
from conccl.report.runs import Run
from conccl.report.sections.cells import (
    count_cell,
    name_cell,
    number_cell,
    ratio_cell,
    share_cell,
    table_of_runs,
    time_cell,
)
from conccl.report.texts import time_text
from conccl.traces.findings import Unclassified
from conccl.traces.trace import Health

MOST_NOTES = 40
MOST_ROWS = 300

_COUNTS = {
    "rows": ("GPU rows", "Rows that were read"),
    "overlapping_rows": (
        "Overlapping",
        "Rows that began before the row before them on their stream had ended",
    ),
    "clipped_ns": ("Clipped", "Time cut off those, so that each stream is serial"),
    "zero_rows": ("No duration", "Rows that last no time"),
    "negative_rows": ("Negative", "Rows with a negative duration: dropped"),
    "bad_time_rows": ("Bad times", "Rows whose times are no finite numbers: dropped"),
    "unlinked_rows": ("Unlinked", "Rows whose launch is not in the trace, so that their step is not known"),
    "graph_rows": ("In graphs", "Rows launched by graphs: idle time inside a graph is not known"),
    "sync_rows": ("Sync rows", "Synchronisation rows: never counted as work"),
}
"""Fields of `Health` in the order shown: heading and what it means."""


def health(runs: tuple[Run, ...], /) -> Section:
    """Warnings first, then what was odd about each rank's rows, then what no rule knows."""
    blocks: list[Block] = [_notes(runs), _rows_table(runs), _unclassified(runs), *_predictions(runs)]
    return Section(
        id="health",
        title="Health",
        lead="What was odd about the traces, and so how far these figures can be trusted.",
        blocks=tuple(blocks),
    )


_PREDICTIONS_RULE = (
    "Kernels that ran under overlap and never alone, by the cost models of the device. Of kernels of the same"
    " family that also ran alone, the median of measured over predicted (by time) corrects them, and what is"
    " left of the error is the uncertainty; where fewer than three did, it is the model's own."
)
_PREDICTION_COLUMNS = (
    Column(label="Rank", numeric=True, of_rank=True),
    Column(label="Device"),
    Column(label="Family", always=True),
    Column(label="Measured alone", numeric=True, help="Kernels of the family that the check rests on"),
    Column(label="Error before", numeric=True, help="Mean relative error on those, by time"),
    Column(label="Factor", numeric=True, help="What predictions are multiplied by"),
    Column(label="Uncertainty", numeric=True, help="Relative error to expect"),
    Column(label="Used", help="Families that are too far off are left unknown"),
)


def _predictions(runs: tuple[Run, ...]) -> list[Block]:
    """How far predicted isolated times can be trusted; nothing where there are none."""
    rows: list[tuple[Run, tuple[Cell, ...]]] = [
        (
            run,
            (
                number_cell(rank.rank),
                Cell(text=rank.predictions.device or "-"),
                Cell(text=family.family),
                count_cell(family.measured),
                share_cell(family.error_before),
                ratio_cell(family.factor),
                share_cell(family.uncertainty),
                Cell(text="yes" if family.used else "no"),
            ),
        )
        for run in runs
        for rank in run.analysis.ranks
        if rank.predictions is not None
        for family in rank.predictions.calibration
    ]
    if not rows:
        return []
    return [
        table_of_runs(
            rows,
            title="Predicted isolated times",
            rule=_PREDICTIONS_RULE,
            columns=_PREDICTION_COLUMNS,
            most=MOST_ROWS,
        )
    ]


def _notes(runs: tuple[Run, ...]) -> Notes:
    notes = [note for run in runs for note in _run_notes(run)]
    left_out = len(notes) - MOST_NOTES
    if left_out > 0:
        notes = [*notes[:MOST_NOTES], Note(level="info", title=f"and {left_out} more; the JSON has them all")]
    if not notes:
        notes = [Note(level="info", title="Every file could be read, and nothing was odd.")]
    return Notes(title="Warnings", rule=_rules(runs), notes=tuple(notes))


def _run_notes(run: Run) -> list[Note]:
    analysis = run.analysis
    notes = [
        Note(
            level="problem",
            title=f"{problem.path}{f' ({problem.place})' if problem.place else ''}",
            text=f"{problem.problem}. {problem.remedy}",
            run=run.label,
        )
        for problem in analysis.problems
    ]
    notes += [Note(level="warning", title=warning, run=run.label) for warning in analysis.warnings]
    notes += [
        Note(level="warning", title=f"rank {rank.rank}: {warning}", run=run.label)
        for rank in analysis.ranks
        for warning in rank.warnings
    ]
    return notes


def _rules(runs: tuple[Run, ...]) -> str:
    """By which rules kernels were told apart, and whether the ranks share a clock."""
    said = [(run.label, _rules_of(run)) for run in runs]
    if len({sentence for _, sentence in said}) == 1:
        return said[0][1]
    return " ".join(f"{label}: {sentence}" for label, sentence in said)


def _rules_of(run: Run) -> str:
    rules, clock = run.analysis.rules, run.analysis.clock
    sentence = (
        f"Kernels are classified by rules version {rules.version} ({rules.source}), host copies count as"
        f" {rules.host_copies}."
    )
    if clock is None:
        return sentence
    corrected = " after correction" if any(clock.offsets_ns.values()) else ""
    return (
        f"{sentence} Ends of {clock.matched} matched collectives agree across ranks within"
        f" {time_text(clock.residual_ns)}{corrected}."
    )


def _rows_table(runs: tuple[Run, ...]) -> DataTable:
    seen = [rank.health for run in runs for rank in run.analysis.ranks]
    fields = [field for field in _COUNTS if field == "rows" or any(getattr(h, field) for h in seen)]
    return table_of_runs(
        [(run, _rank_row(rank, fields)) for run in runs for rank in run.analysis.ranks],
        title="Rows",
        rule="GPU rows of each trace; a kind of oddity that occurs nowhere has no column.",
        columns=(
            Column(label="Rank", numeric=True),
            Column(label="File"),
            Column(label="Rank known by"),
            Column(label="Device"),
            *(Column(label=_COUNTS[field][0], numeric=True, help=_COUNTS[field][1]) for field in fields),
            Column(label="Ended early", help="The file is truncated; what came before was read"),
        ),
        most=MOST_ROWS,
    )


def _rank_row(rank: RankAnalysis, fields: list[str]) -> tuple[Cell, ...]:
    return (
        number_cell(rank.rank),
        name_cell(short(rank.path, width=60), full=rank.path),
        Cell(text=rank.rank_source),
        Cell(text=short(rank.device_name or "-", width=40)),
        *(_count(rank.health, field) for field in fields),
        Cell(text="yes" if rank.health.truncated else ""),
    )


def _count(record: Health, field: str) -> Cell:
    value = int(getattr(record, field))
    return time_cell(value) if field.endswith("_ns") else count_cell(value)


def _unclassified(runs: tuple[Run, ...]) -> Block:
    title = "Unclassified kernels"
    rule = "Kernels that no rule knows; counted as compute. Share of all kernel time."
    rows = [(run, _kernel_row(kernel)) for run in runs for kernel in run.analysis.unclassified]
    if not rows:
        return Notes(title=title, rule=rule, notes=(Note(level="info", title="There is none."),))
    columns = (
        Column(label="Kernel"),
        Column(label="Count", numeric=True),
        Column(label="Time", numeric=True),
        Column(label="Share", numeric=True),
    )
    return table_of_runs(rows, title=title, rule=rule, columns=columns, most=MOST_ROWS, visible=8)


def _kernel_row(kernel: Unclassified) -> tuple[Cell, ...]:
    return (
        name_cell(short(kernel.name, width=90), full=kernel.name),
        count_cell(kernel.count),
        time_cell(kernel.duration_ns),
        share_cell(kernel.share),
    )
