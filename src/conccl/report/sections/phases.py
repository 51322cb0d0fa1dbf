"""Phases over time: which of them each interval of a run belongs to, and which intervals stand for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conccl.core.errors import InputError
from conccl.report.blocks import Section
from conccl.report.plots import Mark, PhaseChart, PhaseRow, nice_ticks

FINEST = 1_500
"""Columns that a run is drawn in: beyond that, a column shows every phase that has an interval in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """One run: the phase of every interval, and the intervals chosen to stand for phases."""

    label: str
    phase: Sequence[int]
    """Phase id of each interval, in order."""
    points: Mapping[int, float]
    """Chosen interval -> share of the run that it stands for, 0 to 1."""
    unit: str = "interval"
    """What the x axis counts."""


def phases(runs: Sequence[Phases], /) -> Section:
    """One chart a run, a row a phase, those with most intervals first."""
    return Section(
        id="phases",
        title="Phases over time",
        lead="Which phase each part of the run belongs to; circles are the intervals chosen to stand for it.",
        blocks=tuple(_chart(run) for run in runs),
    )


def _chart(run: Phases) -> PhaseChart:
    phase = np.asarray(run.phase)
    if not len(phase) or any(not 0 <= point < len(phase) for point in run.points):
        raise InputError(
            f"{len(phase)} intervals and points {sorted(run.points)}: a point is one of the run's intervals."
        )
    ids, counts = np.unique(phase, return_counts=True)
    order = np.lexsort((ids, -counts))
    return PhaseChart(
        title=run.label,
        rule=f"{len(phase)} {run.unit}s in {len(ids)} phases, {len(run.points)} chosen. A row each phase,"
        " with its share of the run; point at a circle for what it stands for.",
        x_label=run.unit,
        rows=tuple(_row(run, phase, int(ids[place]), int(counts[place])) for place in order),
        intervals=len(phase),
        x_ticks=nice_ticks(0, len(phase), label="{:,.0f}".format),
    )


def _row(run: Phases, phase: np.ndarray[tuple[int], np.dtype[np.int64]], id_: int, count: int) -> PhaseRow:
    return PhaseRow(
        label=f"phase {id_}",
        detail=f"{100 * count / len(phase):.1f} %",
        segments=tuple(
            (start, end, f"{run.unit}s {start} to {end - 1}") for start, end in _segments(phase == id_)
        ),
        marks=tuple(
            Mark(
                x=point + 0.5,
                share=share,
                text=f"{run.unit} {point} stands for {100 * share:.1f} % of the run",
            )
            for point, share in sorted(run.points.items())
            if phase[point] == id_
        ),
    )


def _segments(mine: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """Where it runs, [start, end); of a long run in as many columns as can be seen."""
    column = max(1, -(-len(mine) // FINEST))
    starts = np.arange(0, len(mine), column)
    seen = np.logical_or.reduceat(mine, starts)
    edges = np.flatnonzero(np.diff(np.r_[False, seen, False].astype(np.int8)))
    return [
        (int(start) * column, min(len(mine), int(end) * column))
        for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]
