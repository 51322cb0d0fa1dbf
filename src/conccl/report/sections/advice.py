"""Advice: what to do about what was found, the most costly first."""

from __future__ import annotations

from conccl.advise.advised import Advice, Remedy, SimulatedStrategy
from conccl.report.blocks import Block, Cell, Column, Note, Notes, Section
from conccl.report.names import short
from conccl.report.runs import Run
from conccl.report.sections.cells import name_cell, number_cell, ratio_cell, table_of_runs, time_cell
from conccl.report.texts import time_text

MOST_NOTES = 20
MOST_ROWS = 100

_RULE = (
    "The longest compute kernel of the overlap, in a row that lasts as long as the communication, beside"
    " that, in the simulator. Saved is what goes away of the overlap's cost on the rank that pays most; below"
    " zero it would cost more. The best is the simplest of those that save most, where that is more than its"
    " uncertainty."
)
_COLUMNS = (
    Column(label="Overlap", numeric=True, help="Its place among what cost most"),
    Column(label="Strategy"),
    Column(label="Saved", numeric=True),
    Column(label="Of", numeric=True, help="What the overlap costs that rank"),
    Column(label="Fraction of ideal", numeric=True, help="Simulated"),
    Column(label="In the trace", numeric=True, help="Fraction of ideal where they ran together"),
    Column(label="Speedup", numeric=True, help="Simulated, over one after the other"),
    Column(label="Communication"),
    Column(label="Compute"),
    Column(label="Simulated", help="The ops that stand for them"),
    Column(label="Rank", numeric=True, of_rank=True),
    Column(label="Device"),
)


def advice(runs: tuple[Run, ...], /) -> Section:
    """What to do, with what it costs not to."""
    notes = [
        Note(
            level="advice",
            title=entry.title,
            text=entry.detail,
            cost=_cost(entry),
            run=run.label,
        )
        for run in runs
        for entry in run.analysis.advice
    ]
    if not notes:
        notes = [Note(level="info", title="Nothing was found that is worth changing.")]
    return Section(
        id="advice",
        title="What to do",
        lead="For each run, by what a finding costs." if len(runs) > 1 else "By what each finding costs.",
        blocks=(Notes(notes=tuple(notes[:MOST_NOTES])), *_remedies(runs)),
    )


def _cost(entry: Advice) -> str:
    if entry.cost_ns is None:
        return ""
    if entry.remedy is None:
        return f"costs {time_text(entry.cost_ns)}"
    return f"saves {time_text(entry.cost_ns)} ± {time_text(entry.remedy.uncertainty_ns)}, simulated"


def _remedies(runs: tuple[Run, ...]) -> list[Block]:
    """Every strategy that was simulated for the costliest overlaps; nothing where none could be."""
    rows = [
        (run, _strategy(remedy, strategy))
        for run in runs
        for remedy in run.analysis.remedies
        for strategy in remedy.strategies
    ]
    if not rows:
        return []
    table = table_of_runs(rows, title="Strategies, simulated", rule=_RULE, columns=_COLUMNS, most=MOST_ROWS)
    return [table]


def _strategy(remedy: Remedy, strategy: SimulatedStrategy) -> tuple[Cell, ...]:
    fraction = strategy.fraction_of_ideal
    return (
        number_cell(remedy.place + 1),
        Cell(text=f"{strategy.name}{' (best)' if strategy.name == remedy.best else ''}"),
        Cell(
            text=f"{time_text(strategy.gain_ns)} ± {time_text(strategy.uncertainty_ns)}",
            value=strategy.gain_ns,
        ),
        time_cell(remedy.cost_ns),
        Cell(text="-" if fraction is None else f"{fraction:.2f}", value=fraction),
        Cell(
            text="-" if remedy.measured_fraction is None else f"{remedy.measured_fraction:.2f}",
            value=remedy.measured_fraction,
        ),
        ratio_cell(strategy.speedup),
        name_cell(short(remedy.communication, width=28), full=remedy.communication, kind="communication"),
        name_cell(short(remedy.compute, width=28), full=remedy.compute, kind="compute"),
        Cell(text=remedy.pair, full=remedy.assumption),
        number_cell(remedy.rank),
        Cell(text=remedy.device),
    )
