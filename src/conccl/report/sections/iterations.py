"""Iterations of a model on variations of a device: figures of each, and how they change along a sweep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from conccl.bench.iteration import Iteration
from conccl.bench.iteration_sweep import Outcome
from conccl.core.units import format_share
from conccl.report.blocks import Block, Cell, Column, DataTable, Lines, Note, Notes, Section, Series, Tick
from conccl.report.iteration import FIGURES, described, figures_of
from conccl.report.sections.strategies import axis, axis_ticks
from conccl.report.texts import time_text, value_text
from conccl.workloads.layers import Phase
from conccl.workloads.steps import Workload

_SHARES: tuple[tuple[str, Callable[[Iteration], float]], ...] = (
    ("exposed communication", lambda one: one.exposed_communication_ns / one.iteration_ns),
    ("bubble", lambda one: one.bubble_ns / one.iteration_ns),
    ("MFU", lambda one: one.mfu),
)


def iterations(workload: Workload, found: Sequence[Outcome], /) -> Section:
    """One iteration, or a sweep's: lines along what was varied, then a table."""
    done = [(outcome, outcome.iteration) for outcome in found if outcome.iteration is not None]
    blocks: list[Block] = []
    if len(done) > 1:
        blocks += [_times(done), _shares(done, workload)]
    blocks.append(_table(workload, found))
    reasons = dict.fromkeys(outcome.reason for outcome in found if outcome.reason)
    if reasons:
        notes = tuple(Note(level="info", title=reason) for reason in reasons)
        blocks.append(Notes(notes=notes, title="Left out", rule="Variations without a figure, and why."))
    return Section(id="iterations", title="Iterations", lead=f"{described(workload)}.", blocks=tuple(blocks))


def _times(done: Sequence[tuple[Outcome, Iteration]]) -> Lines:
    most = max(one.iteration_ns for _, one in done)
    step = 10 ** math.floor(math.log10(most))
    end = math.ceil(most / step) * step
    points = [(float(one.iteration_ns), time_text(one.iteration_ns)) for _, one in done]
    exposed = [
        (float(one.exposed_communication_ns), time_text(one.exposed_communication_ns)) for _, one in done
    ]
    return _lines(
        done,
        title="Time of an iteration",
        rule="Simulated: what a wall clock would show, and communication that nothing covers.",
        y_ticks=tuple(Tick(value=end * part / 4, label=time_text(end * part / 4)) for part in range(5)),
        along={"iteration": points, "exposed communication": exposed},
    )


def _shares(done: Sequence[tuple[Outcome, Iteration]], workload: Workload) -> Lines:
    shares = [share for share in _SHARES if share[0] != "MFU" or workload.batch.phase is not Phase.DECODE]
    return _lines(
        done,
        title="Where it goes",
        rule="Shares of the iteration; MFU: operations that the model needs over what the GPUs could do.",
        y_ticks=tuple(Tick(value=part / 4, label=f"{part * 25} %") for part in range(5)),
        along={
            name: [(share(one), f"{name} {format_share(share(one))}") for _, one in done]
            for name, share in shares
        },
    )


def _lines(
    done: Sequence[tuple[Outcome, Iteration]],
    /,
    *,
    title: str,
    rule: str,
    y_ticks: tuple[Tick, ...],
    along: dict[str, list[tuple[float, str]]],
) -> Lines:
    variations = [outcome.variation for outcome, _ in done]
    values, label, is_log = axis([variation.changes for variation in variations])
    order = sorted(range(len(done)), key=values.__getitem__)
    series = tuple(
        Series(
            label=name,
            points=tuple(
                (values[place], points[place][0], f"{variations[place].name}: {points[place][1]}")
                for place in order
            ),
        )
        for name, points in along.items()
    )
    return Lines(
        title=title,
        rule=rule,
        x_label=label,
        x_ticks=axis_ticks(values, variations),
        y_ticks=y_ticks,
        series=series,
        is_log=is_log,
    )


def _table(workload: Workload, found: Sequence[Outcome], /) -> DataTable:
    fields = list(dict.fromkeys(field for each in found for field in each.variation.changes))
    rows = []
    for outcome in found:
        changes = outcome.variation.changes
        named = [Cell(text=value_text(field, changes[field])) for field in fields]
        named = named or [Cell(text=outcome.variation.device.name)]
        one = outcome.iteration
        figures = figures_of(workload, one) if one is not None else ("-",) * len(FIGURES)
        rows.append((*named, *(Cell(text=text) for text in figures)))
    return DataTable(
        title="Every variation",
        rule="Simulated. exposed: communication that nothing covers; bubble: pipelines that fill and drain.",
        columns=(
            *(Column(label=field) for field in fields or ["device"]),
            *(Column(label=name, numeric=True) for name in FIGURES),
        ),
        rows=tuple(rows),
        visible=30,
    )
