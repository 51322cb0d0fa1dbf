"""A training run's lengths, the iterations chosen by them, and how well those project it."""

from __future__ import annotations

import numpy as np

from conccl.report.blocks import (
    Block,
    Cell,
    Column,
    DataTable,
    Figure,
    Figures,
    Gauge,
    Note,
    Notes,
    Section,
)
from conccl.report.plots import Bucket, DensityMap, Field, Histogram, Mark, nice_ticks
from conccl.report.sections.curves import error_lines
from conccl.sampling.curves import iteration_curves
from conccl.sampling.logs import Lengths
from conccl.sampling.study import Study

BUCKETS = 64
FIELDS = 48


def seqpoints(study: Study, /) -> tuple[Section, ...]:
    """The answer, the lengths with the chosen marked, and the error against how many are chosen."""
    return (_headline(study), _lengths(study), _errors(study))


def _headline(study: Study) -> Section:
    selection = study.selection
    chosen = next(p for p in selection.projections if p.statistic == study.statistic)
    less = selection.iterations / len(selection.seqpoints)
    where = "simulated" if study.simulated_on else "from the log"
    figures = [
        ("Chosen", f"{len(selection.seqpoints):,} of {selection.iterations:,}", "iterations to profile"),
        ("Profiled less", f"{less:,.0f} x", "iterations of the run for each chosen one"),
        ("Lengths", f"{selection.lengths:,}", "distinct; the statistic is known of each"),
    ]
    if chosen.error_percent is not None:
        rule = f"projection of {study.statistic}, {where}, against its sum over all iterations"
        figures.insert(2, ("Error", f"{chosen.error_percent:.3f} %", rule))
    return Section(
        id="chosen",
        title="Chosen iterations",
        lead="A few iterations, chosen by sequence length, that stand for the whole run (SeqPoint).",
        blocks=(
            Figures(
                figures=tuple(
                    Figure(title=title, rule=rule, rows=(Gauge(label="", value=0.0, text=text),))
                    for title, text, rule in figures
                )
            ),
            _table(study),
        ),
    )


def _table(study: Study) -> DataTable:
    total = study.selection.iterations
    return DataTable(
        title="SeqPoints and their weights",
        rule="Measure these iterations anywhere and sum each times what it stands for.",
        columns=(
            *(Column(label=_word(name), numeric=True) for name in study.run.names),
            Column(label="Iteration", numeric=True, help="One that has this length"),
            Column(label="Stands for", numeric=True, help="Iterations"),
            Column(label="Share", numeric=True, help="Of all iterations"),
        ),
        rows=tuple(
            (
                *(Cell(text=f"{size:,}", value=size) for size in point.length),
                Cell(text=str(point.iteration), value=point.iteration),
                Cell(text=f"{point.weight:,}", value=point.weight),
                Cell(text=f"{100 * point.weight / total:.1f} %", value=point.weight / total),
            )
            for point in study.selection.seqpoints
        ),
    )


def _word(name: str) -> str:
    word = name.removeprefix("length_").removeprefix("length.")
    return word[:1].upper() + word[1:]


def _lengths(study: Study) -> Section:
    block = _histogram(study) if len(study.run.names) == 1 else _map(study)
    blocks: list[Block] = [block]
    if len(study.run.names) > 2:
        text = f"The run has {len(study.run.names)} lengths; the first two are drawn."
        blocks.append(Notes(notes=(Note(level="info", title=text),)))
    return Section(
        id="lengths",
        title="Lengths",
        lead="How often each length occurs; circles are SeqPoints, as large as what they stand for.",
        blocks=tuple(blocks),
    )


def _histogram(study: Study) -> Histogram:
    length = study.run.length[:, 0]
    low, high = int(length.min()), int(length.max())
    step = _step(study.run.length)[0]
    width = step * -(-(high - low + step) // (step * BUCKETS))
    counts = np.bincount((length - low) // width)
    return Histogram(
        title="Iterations by length",
        rule=f"{len(length):,} iterations in {len(np.unique(length)):,} lengths, in bars {width:,} wide.",
        x_label=_word(study.run.names[0]),
        y_label="Iterations",
        buckets=tuple(
            Bucket(
                low=low + place * width,
                high=low + (place + 1) * width,
                height=int(count),
                text=f"{_range(low + place * width, width)}: {count:,} iterations",
            )
            for place, count in enumerate(counts)
        ),
        marks=_marks(study),
        x_ticks=nice_ticks(low, high + 1, label="{:,.0f}".format),
        y_ticks=nice_ticks(0, int(counts.max()), most=6, label="{:,.0f}".format),
    )


def _range(low: int, width: int) -> str:
    return f"{low:,}" if width == 1 else f"{low:,} to {low + width - 1:,}"


def _step(length: Lengths) -> list[int]:
    """What all lengths of a dimension are multiples apart: 1, or what they were padded to."""
    return [int(step) or 1 for step in np.gcd.reduce(length - length.min(axis=0), axis=0)]


def _marks(study: Study) -> tuple[Mark, ...]:
    """In the middle of their lengths' bars or fields."""
    selection, step = study.selection, _step(study.run.length)
    marks = (
        Mark(
            x=point.length[0] + step[0] / 2,
            y=point.length[1] + step[1] / 2 if len(step) > 1 else 0.0,
            share=point.weight / selection.iterations,
            text=f"{' x '.join(f'{size:,}' for size in point.length)}: iteration {point.iteration} stands for"
            f" {point.weight:,} ({100 * point.weight / selection.iterations:.1f} %)",
        )
        for point in selection.seqpoints
    )
    return tuple(sorted(marks, key=lambda mark: -mark.share))


def _map(study: Study) -> DensityMap:
    length = study.run.length[:, :2]
    low, high = length.min(axis=0), length.max(axis=0)
    step = np.array(_step(length))
    width = step * -(-(high - low + step) // (step * FIELDS))
    cells, counts = np.unique((length - low) // width, axis=0, return_counts=True)
    most = np.log1p(counts.max())
    names = [_word(name) for name in study.run.names]
    return DensityMap(
        title="Iterations by length",
        rule=f"{len(length):,} iterations, {study.selection.lengths:,} lengths; the darker a field, the more"
        " iterations it has (logarithmic).",
        x_label=names[0],
        y_label=names[1],
        fields=tuple(
            Field(
                x_low=float(low[0] + x * width[0]),
                x_high=float(low[0] + (x + 1) * width[0]),
                y_low=float(low[1] + y * width[1]),
                y_high=float(low[1] + (y + 1) * width[1]),
                share=float(np.log1p(count) / most),
                text=f"{names[0]} {_range(int(low[0] + x * width[0]), int(width[0]))},"
                f" {names[1]} {_range(int(low[1] + y * width[1]), int(width[1]))}: {count:,} iterations",
            )
            for (x, y), count in zip(cells, counts.tolist(), strict=True)
        ),
        marks=_marks(study),
        x_ticks=nice_ticks(int(low[0]), int(high[0]) + 1, label="{:,.0f}".format),
        y_ticks=nice_ticks(int(low[1]), int(high[1]) + 1, label="{:,.0f}".format),
    )


def _errors(study: Study) -> Section:
    curves = iteration_curves(study.run, statistic=study.statistic)
    lead = "How far off the projected sum is, by SeqPoint and by what people do instead."
    if not curves:
        note = Note(level="info", title=f"{study.statistic} is zero everywhere: no error can be stated.")
        return Section(id="errors", title="Error", lead=lead, blocks=(Notes(notes=(note,)),))
    rule = (
        f"Sum of {study.statistic} over the run, projected from as many iterations by each rule, against the"
        " sum of each length's mean. random: median of 5 draws."
    )
    lines = error_lines(
        curves, title="Error against number of iterations", rule=rule, what="iterations chosen"
    )
    return Section(id="errors", title="Error", lead=lead, blocks=(lines,))
