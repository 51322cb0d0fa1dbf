"""The breakdown: where each rank's and each step's time goes, in five parts that sum to it."""

from __future__ import annotations

from conccl.advise.analysis import RankAnalysis
from conccl.report.blocks import Bar, BarGroup, Block, Cell, Column, DataTable, Part, Section, StackedBars
from conccl.report.names import short
from conccl.report.runs import Run, windows
from conccl.report.sections.cells import (
    count_cell,
    fraction_cell,
    ideal_cell,
    name_cell,
    number_cell,
    share_cell,
    speedup_cell,
    table_of_runs,
    time_cell,
)
from conccl.report.sections.timeline import LEGEND
from conccl.report.texts import headline_ranks, time_text
from conccl.traces.findings import StepSplit, TimeSplit, WindowOverlap

MOST_RANKS = 32
MOST_STEPS = 40
MOST_ROWS = 600

_SPLIT_RULE = (
    "Every moment of a rank's window is one of five: compute only, communication only, both, copy only (a"
    " copy or memset under neither), idle. They sum to the window exactly."
)
_STEP_RULE = (
    "GPU work belongs to the step that launched it, whenever it ran; a step reaches from its first work's"
    " start to its last work's end, so neighbouring steps can overlap."
)


def breakdown(runs: tuple[Run, ...], /) -> Section:
    """Ranks, then steps, as bars of one scale; then all numbers."""
    blocks: list[Block] = [
        StackedBars(
            title="Ranks",
            rule=f"{_SPLIT_RULE} {windows(runs)}",
            legend=LEGEND,
            groups=tuple(_ranks(run) for run in runs),
        )
    ]
    stepped = tuple(run for run in runs if any(len(rank.steps) > 1 for rank in run.analysis.ranks))
    if stepped:
        blocks.append(
            StackedBars(
                title="Steps",
                rule=_STEP_RULE,
                legend=LEGEND,
                groups=tuple(_steps(run) for run in stepped),
            )
        )
    blocks.append(_numbers(runs))
    blocks += _windows(runs)
    return Section(
        id="breakdown",
        title="Where time goes",
        lead="Each rank's time, split by what its GPU was doing.",
        blocks=tuple(blocks),
    )


def _ranks(run: Run) -> BarGroup:
    ranks = headline_ranks(run.analysis, most=MOST_RANKS)
    left_out = len(run.analysis.ranks) - len(ranks)
    return BarGroup(
        label=run.label,
        bars=tuple(_bar(f"rank {rank.rank}", rank.split) for rank in ranks),
        note=f"{left_out} ranks with less exposed communication stand in the table only." if left_out else "",
    )


def _steps(run: Run) -> BarGroup:
    """Steps of the rank with most exposed communication: all ranks' steps stand in the table."""
    rank = max(run.analysis.ranks, key=lambda rank: (bool(rank.steps), rank.split.communication_only_ns))
    label = f"{run.label} · rank {rank.rank}" if run.label else f"Rank {rank.rank}"
    left_out = len(rank.steps) - MOST_STEPS
    notes = []
    if len(run.analysis.ranks) > 1:
        notes.append("The rank with most exposed communication; the others' steps stand in the table.")
    if left_out > 0:
        notes.append(f"The first {MOST_STEPS} of {len(rank.steps)} steps.")
    return BarGroup(
        label=label,
        bars=tuple(_bar(step.name, step.split) for step in rank.steps[:MOST_STEPS]),
        note=" ".join(notes),
    )


def _parts(split: TimeSplit) -> tuple[tuple[str, str, int], ...]:
    values = (
        split.compute_only_ns,
        split.communication_only_ns,
        split.both_ns,
        split.copy_only_ns,
        split.idle_ns,
    )
    return tuple((kind, label, value) for (kind, label), value in zip(LEGEND, values, strict=True))


def _bar(label: str, split: TimeSplit) -> Bar:
    return Bar(
        label=label,
        parts=tuple(
            Part(
                kind=kind,
                value=value,
                share=value / split.span_ns if split.span_ns else 0.0,
                text=f"{name} {time_text(value)}",
            )
            for kind, name, value in _parts(split)
        ),
        text=time_text(split.span_ns),
    )


def _numbers(runs: tuple[Run, ...]) -> DataTable:
    columns = (
        Column(label="Rank", numeric=True, of_rank=True),
        Column(label="Step"),
        Column(label="Span", numeric=True),
        *(Column(label=label.capitalize(), numeric=True) for _, label in LEGEND),
        Column(label="Hidden", numeric=True, help="Communication under compute over all communication"),
        Column(label="Wait", numeric=True, help="Time in collectives spent waiting for other ranks"),
        Column(label="Transfer", numeric=True, help="The rest of the time in collectives"),
        Column(label="Speedup", numeric=True, help="Isolated times summed, over the time together"),
        Column(label="Fraction of ideal", numeric=True),
    )
    rows = ((run, row) for run in runs for rank in run.analysis.ranks for row in _rank_rows(rank))
    return table_of_runs(
        rows,
        title="All numbers",
        rule="Wait and transfer are known where collectives could be matched across ranks.",
        columns=columns,
        most=MOST_ROWS,
    )


def _rank_rows(rank: RankAnalysis) -> list[tuple[Cell, ...]]:
    """The whole rank, then each of its steps."""
    parts: list[tuple[str, RankAnalysis | StepSplit]] = [("all", rank)]
    parts += [(step.name, step) for step in rank.steps]
    return [(number_cell(rank.rank), Cell(text=name), *_numbers_of(part)) for name, part in parts]


def _numbers_of(part: RankAnalysis | StepSplit) -> tuple[Cell, ...]:
    return (
        time_cell(part.split.span_ns),
        *(time_cell(value) for _, _, value in _parts(part.split)),
        share_cell(part.split.hidden_share),
        time_cell(part.wait_ns),
        time_cell(part.transfer_ns),
        speedup_cell(part.overlap.overlap),
        fraction_cell(part.overlap),
    )


def _windows(runs: tuple[Run, ...]) -> list[Block]:
    """Stretches that the user named in which both sides ran."""
    rows = [
        (run, _window_row(rank, window))
        for run in runs
        for rank in run.analysis.ranks
        for window in rank.windows
    ]
    if not rows:
        return []
    table = table_of_runs(
        rows,
        title="Named stretches",
        rule="Stretches named by record_function whose GPU work has both sides, all of a name together.",
        columns=(
            Column(label="Name"),
            Column(label="Fraction of ideal", numeric=True),
            Column(label="Speedup", numeric=True),
            Column(label="Ideal", numeric=True, help="Ideal speedup"),
            Column(
                label="Length", numeric=True, help="First start to last end of its GPU work, all instances"
            ),
            Column(label="Count", numeric=True),
            Column(label="Rank", numeric=True, of_rank=True),
            Column(
                label="Start", numeric=True, help="The first instance, from the start of the rank's window"
            ),
        ),
        most=MOST_ROWS,
    )
    return [table]


def _window_row(rank: RankAnalysis, window: WindowOverlap) -> tuple[Cell, ...]:
    overlap = window.overlap.overlap
    return (
        name_cell(short(window.name, width=60), full=window.name),
        fraction_cell(window.overlap),
        speedup_cell(overlap),
        ideal_cell(overlap),
        time_cell(window.span_ns),
        count_cell(window.count),
        number_cell(rank.rank),
        time_cell(window.start_ns),
    )
