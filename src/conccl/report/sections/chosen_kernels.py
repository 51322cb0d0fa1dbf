"""A run's kernels, the few chosen to stand for them, and how well those project its kernel time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from conccl.core.units import format_ns
from conccl.report.blocks import Cell, Column, DataTable, Figure, Figures, Gauge, Note, Notes, Section
from conccl.report.plots import Bucket, Histogram, Mark, decades, nice_ticks
from conccl.report.sections.curves import error_lines
from conccl.sampling.curves import kernel_curves
from conccl.sampling.kernels import KernelSample

BUCKETS_A_DECADE = 12
MOST_ROWS = 300

Times = npt.NDArray[np.int64]


def chosen_kernels(sample: KernelSample, names: Sequence[str], durations_ns: Times, /) -> tuple[Section, ...]:
    """The answer, where the time goes with the chosen marked, and the error against how many are chosen."""
    return (_headline(sample), _durations(sample, durations_ns), _errors(names, durations_ns))


def _headline(sample: KernelSample) -> Section:
    error = sample.error_percent
    figures = (
        ("Chosen", f"{len(sample.points)} of {sample.kernels:,}", "kernels"),
        ("Fewer", f"{sample.reduction:,.0f} x", "kernels of the run for each chosen one"),
        ("Error", "-" if error is None else f"{error:.3f} %", "of the projected kernel time, on this run"),
        (
            "95 % interval",
            f"± {sample.interval_percent:.2f} %",
            "were the kernel of each stratum drawn at random",
        ),
    )
    return Section(
        id="chosen",
        title="Chosen kernels",
        lead="A few kernels that stand for all of a run, each for its stratum.",
        blocks=(
            Figures(
                figures=tuple(
                    Figure(title=title, rule=rule, rows=(Gauge(label="", value=0.0, text=text),))
                    for title, text, rule in figures
                )
            ),
            _table(sample),
        ),
    )


def _table(sample: KernelSample) -> DataTable:
    order = sorted(sample.points, key=lambda point: -point.weight * point.duration_ns)
    total = max(1, sample.projected_ns)
    return DataTable(
        title="Kernels and their weights",
        rule="By the time that they stand for.",
        columns=(
            Column(label="Kernel"),
            Column(label="Duration", numeric=True),
            Column(label="Stands for", numeric=True, help="Kernels"),
            Column(label="Share", numeric=True, help="Of the kernel time"),
        ),
        rows=tuple(
            (
                Cell(text=point.name[:90], full=point.name, code=True),
                Cell(text=format_ns(point.duration_ns), value=point.duration_ns),
                Cell(text=f"{point.weight:,}", value=point.weight),
                Cell(
                    text=f"{100 * point.weight * point.duration_ns / total:.1f} %",
                    value=point.weight * point.duration_ns,
                ),
            )
            for point in order[:MOST_ROWS]
        ),
        left_out=max(0, len(order) - MOST_ROWS),
    )


def _durations(sample: KernelSample, durations_ns: Times) -> Section:
    lead = "Where the kernel time goes; circles are chosen kernels, as large as the share they stand for."
    known = durations_ns[durations_ns > 0]
    if not len(known):
        note = Note(level="info", title="Every kernel took no time.")
        return Section(id="durations", title="Durations", lead=lead, blocks=(Notes(notes=(note,)),))
    ticks = decades(float(known.min()), float(known.max()), label=lambda ns: format_ns(round(ns)))
    place = np.floor(np.log10(known / ticks[0][0]) * BUCKETS_A_DECADE).astype(np.int64)
    time, count = np.bincount(place, weights=known), np.bincount(place)
    total = float(known.sum())
    first = int(place.min())
    time, count = time[first:], count[first:]
    edge = ticks[0][0] * 10.0 ** (np.arange(first, first + len(time) + 1) / BUCKETS_A_DECADE)
    marks = [
        Mark(
            x=float(point.duration_ns),
            share=point.weight * point.duration_ns / total,
            text=f"{point.name[:80]}: {format_ns(point.duration_ns)}, stands for {point.weight:,}",
        )
        for point in sample.points
        if point.duration_ns
    ]
    block = Histogram(
        title="Kernel time by duration",
        rule=f"{len(durations_ns):,} kernels; the share of their time, in {BUCKETS_A_DECADE} bars a decade.",
        x_label="duration of a kernel",
        y_label="Share of the kernel time (%)",
        buckets=tuple(
            Bucket(
                low=float(edge[i]),
                high=float(edge[i + 1]),
                height=100 * float(time[i]) / total,
                text=f"{format_ns(round(edge[i]))} to {format_ns(round(edge[i + 1]))}: {count[i]:,} kernels,"
                f" {100 * time[i] / total:.1f} % of the time",
            )
            for i in range(len(time))
        ),
        marks=tuple(sorted(marks, key=lambda mark: -mark.share)),
        x_ticks=tuple((ns, text) for ns, text in ticks if edge[0] <= ns <= edge[-1]),
        y_ticks=nice_ticks(0, 100 * float(time.max()) / total, most=6),
        is_log=True,
    )
    return Section(id="durations", title="Durations", lead=lead, blocks=(block,))


def _errors(names: Sequence[str], durations_ns: Times) -> Section:
    curves = kernel_curves(names, durations_ns)
    lead = "How far off the projected kernel time is by the choice, and by as many kernels picked otherwise."
    if not curves:
        note = Note(level="info", title="Every kernel took no time: no error can be stated.")
        return Section(id="errors", title="Error", lead=lead, blocks=(Notes(notes=(note,)),))
    rule = (
        "Kernel time of the run, projected from as many kernels. The chosen cancel what they are off on this"
        " run; the interval is what random draws would be within. random: median of 50 draws."
    )
    lines = error_lines(curves, title="Error against number of kernels", rule=rule, what="kernels chosen")
    return Section(id="errors", title="Error", lead=lead, blocks=(lines,))
