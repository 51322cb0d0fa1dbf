"""Error against how many were chosen, as lines on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence

from conccl.report.blocks import Lines, Series, Tick
from conccl.report.plots import decades
from conccl.sampling.curves import Curve

LEAST = 0.001
"""Errors in percent below it are drawn as it."""

NAMES = {"seqpoint": "SeqPoint", "kmeans": "k-means"}


def error_lines(curves: Sequence[Curve], /, *, title: str, rule: str, what: str) -> Lines:
    """One line a rule; ``what`` was chosen names the x axis."""
    errors = [max(LEAST, error) for curve in curves for _, error in curve.points]
    counts = sorted({count for curve in curves for count, _ in curve.points})
    y_ticks = decades(min(errors), max(errors))
    ends = [counts[0], max(counts[-1], counts[0] + 1)]
    between = [count for count in counts if counts[0] < count < counts[-1]]
    return Lines(
        title=title,
        rule=f"{rule} Both axes are logarithmic; errors below {LEAST} % are drawn there.",
        x_label=what,
        x_ticks=tuple(Tick(value=value, label=str(value)) for value in (ends[0], *_spread(between), ends[1])),
        y_ticks=tuple(Tick(value=value, label=f"{label} %") for value, label in y_ticks),
        series=tuple(
            Series(
                label=NAMES.get(curve.rule, curve.rule),
                points=tuple(
                    (count, max(error, y_ticks[0][0]), f"{curve.rule}, {count}: {error:.3g} %")
                    for count, error in curve.points
                ),
            )
            for curve in curves
        ),
        is_log=True,
        is_log_up=True,
    )


def _spread(counts: Sequence[int]) -> list[int]:
    """Those that stand far enough apart to be read."""
    kept: list[int] = []
    last = 0.0
    for count in counts:
        if count >= 1.45 * last and (not counts or count * 1.3 <= counts[-1] or count == counts[-1]):
            kept.append(count)
            last = count
    return kept
