"""The headline: how far from ideal the overlap is, what is hidden, what is exposed, what only waits."""

from __future__ import annotations

from collections.abc import Iterable

from conccl.advise.analysis import Analysis
from conccl.core.metrics import MEANINGFUL_IDEAL_SPEEDUP
from conccl.core.units import format_share
from conccl.report.blocks import Figure, Figures, Gauge, Gauges, Section
from conccl.report.names import short
from conccl.report.runs import Run, windows
from conccl.report.texts import (
    communication_totals,
    fraction_reason,
    fraction_text,
    mean_or_none,
    middle_rank,
    range_text,
    ratio_text,
    time_text,
)
from conccl.traces.findings import OverlapEstimate, WindowOverlap

_IDEAL_RULE = (
    "(speedup - 1) / (ideal speedup - 1). Speedup is isolated compute + isolated communication over the time"
    " they took together; ideal speedup is the same sum over its longer side. Isolated times are those of the"
    " same kernels alone in the trace; \u201c~\u201d marks figures that rest on predicted ones."
)


def headline(runs: tuple[Run, ...], /) -> Section:
    """The figures that a reader came for, every run on the same axes."""
    rule = f"{_IDEAL_RULE} {windows(runs)}"
    stretch = _common_stretch(runs)
    figures: tuple[Figure, ...] = (_hidden(runs), _exposed(runs), _waiting(runs), _idle(runs))
    if stretch is None:
        leading = _gauges("Fraction of ideal", rule, [_fraction(run) for run in runs])
    else:
        leading = _like_for_like(runs, stretch)
        figures = (_whole(runs), *figures)
    return Section(
        id="headline",
        title="Overlap",
        lead="How much of what overlap can bring was reached, and where the rest went.",
        blocks=(leading, Figures(figures=figures)),
    )


def _gauges(title: str, rule: str, rows: Iterable[Gauge]) -> Gauges:
    return Gauges(
        title=title,
        rule=rule,
        low_label="0: serial, nothing gained",
        high_label="1: ideal, the shorter side costs nothing",
        rows=tuple(rows),
    )


def _common_stretch(runs: tuple[Run, ...]) -> str | None:
    """Where runs are compared: the longest stretch that was named alike in all of them."""
    named = [_stretches(run) for run in runs]
    common = set(named[0]).intersection(*named[1:]) if len(runs) > 1 else set()
    return max(common, key=lambda name: (named[0][name].span_ns, name)) if common else None


def _like_for_like(runs: tuple[Run, ...], name: str) -> Gauges:
    rule = f"{_IDEAL_RULE} Window: the stretches that record_function named so, all of them together."
    rows = [_stretch(run, _stretches(run)[name]) for run in runs]
    return _gauges(f"Fraction of ideal in \u201c{short(name, width=60)}\u201d", rule, rows)


def _whole(runs: tuple[Run, ...]) -> Figure:
    return Figure(
        title="Fraction of ideal, everything",
        rule=f"The same over the whole window. {windows(runs)}",
        rows=tuple(
            Gauge(label=gauge.label, value=gauge.value, text=gauge.text) for gauge in map(_fraction, runs)
        ),
    )


def _stretches(run: Run) -> dict[str, WindowOverlap]:
    """Named stretches with a fraction of ideal, each on its longest rank."""
    found: dict[str, WindowOverlap] = {}
    for rank in run.analysis.ranks:
        for window in rank.windows:
            known = (
                window.overlap.overlap is not None and window.overlap.overlap.fraction_of_ideal is not None
            )
            if known and (window.name not in found or window.span_ns > found[window.name].span_ns):
                found[window.name] = window
    return found


def _stretch(run: Run, window: WindowOverlap) -> Gauge:
    overlap = window.overlap.overlap
    return Gauge(
        label=run.label,
        value=None if overlap is None else overlap.fraction_of_ideal,
        text=fraction_text(window.overlap),
        detail="; ".join([*_overlap_details(window.overlap), f"{window.count} stretches"]),
    )


def _fraction(run: Run) -> Gauge:
    rank = middle_rank(run.analysis)
    if rank is None or rank.overlap.overlap is None:
        return Gauge(
            label=run.label, value=None, text=_no_fraction(run.analysis), detail=_why_none(run.analysis)
        )
    overlap = rank.overlap.overlap
    details = [*_overlap_details(rank.overlap), *_range(run.analysis, rank.rank)]
    return Gauge(
        label=run.label,
        value=overlap.fraction_of_ideal,
        text=fraction_text(rank.overlap),
        detail="; ".join(details),
    )


def _overlap_details(estimate: OverlapEstimate) -> list[str]:
    """The speedup beside its ideal, the times it comes from, and what is not known of them."""
    overlap = estimate.overlap
    if overlap is None:
        return [fraction_reason(None)]
    details = [
        f"speedup {ratio_text(overlap.speedup)} of an ideal {ratio_text(overlap.ideal_speedup)}",
        f"{time_text(overlap.compute_ns)} compute and {time_text(overlap.communication_ns)} communication"
        f" took {time_text(overlap.concurrent_ns)}",
    ]
    if estimate.unknown_ns:
        details.append(f"{time_text(estimate.unknown_ns)} of kernels have no isolated time")
    if estimate.source != "measured":
        span = range_text(estimate)
        details.append(
            f"predicted: {time_text(estimate.predicted_ns)} of overlap rest on isolated times by cost models"
            + (f", between {span} if all err one way" if span else "")
        )
    return details


def _range(analysis: Analysis, middle: int) -> list[str]:
    """Where several ranks have a fraction: which one is shown, and from where to where they reach."""
    fractions = [
        overlap.fraction_of_ideal
        for rank in analysis.ranks
        if (overlap := rank.overlap.overlap) is not None and overlap.fraction_of_ideal is not None
    ]
    if len(fractions) < 2:
        return []
    return [f"rank {middle}, the median; ranks reach from {min(fractions):.2f} to {max(fractions):.2f}"]


def _no_fraction(analysis: Analysis) -> str:
    known = any(rank.overlap.overlap is not None for rank in analysis.ranks)
    return "not meaningful" if known else "unknown"


def _why_none(analysis: Analysis) -> str:
    if not analysis.ranks:
        return "no rank could be read"
    first = analysis.ranks[0].overlap.overlap
    if first is None:
        unknown = mean_or_none(rank.overlap.unknown_ns for rank in analysis.ranks)
        return (
            f"{fraction_reason(None)}: {time_text(unknown)} a rank of kernels ran beside the other side and"
            " never alone"
        )
    return (
        f"speedup {ratio_text(first.speedup)} of an ideal {ratio_text(first.ideal_speedup)}: below"
        f" {MEANINGFUL_IDEAL_SPEEDUP} there is next to nothing to gain"
    )


def _hidden(runs: tuple[Run, ...]) -> Figure:
    rows = []
    for run in runs:
        communication, both, _ = communication_totals(run.analysis)
        share = both / communication if communication else None
        detail = f"{time_text(both)} of {time_text(communication)}" if communication else "no communication"
        rows.append(Gauge(label=run.label, value=share, text=format_share(share), detail=detail))
    return Figure(
        title="Communication hidden",
        rule="Communication under compute over all communication, summed over ranks.",
        rows=tuple(rows),
    )


def _exposed(runs: tuple[Run, ...]) -> Figure:
    rows = []
    for run in runs:
        communication, both, span = communication_totals(run.analysis)
        exposed = communication - both
        count = max(1, len(run.analysis.ranks))
        share = exposed / span if span else None
        rows.append(
            Gauge(
                label=run.label,
                value=exposed / count,
                text=time_text(exposed / count),
                detail=f"{format_share(share)} of the span",
            )
        )
    return Figure(
        title="Exposed communication",
        rule="Time with communication and no compute beside it; mean over ranks.",
        rows=tuple(rows),
    )


def _waiting(runs: tuple[Run, ...]) -> Figure:
    rows = []
    for run in runs:
        wait = mean_or_none(rank.wait_ns for rank in run.analysis.ranks)
        transfer = mean_or_none(rank.transfer_ns for rank in run.analysis.ranks)
        if wait is None or transfer is None:
            reason = "one rank" if len(run.analysis.ranks) == 1 else "nothing matched across ranks"
            rows.append(Gauge(label=run.label, value=None, text="unknown", detail=reason))
            continue
        share = wait / (wait + transfer) if wait + transfer else None
        detail = f"{time_text(wait)} waiting, {time_text(transfer)} transfer"
        rows.append(Gauge(label=run.label, value=share, text=format_share(share), detail=detail))
    return Figure(
        title="Communication that waits",
        rule="A collective transfers for as long as its shortest rank takes; the rest of each rank's time is"
        " waiting for others. Mean over ranks.",
        rows=tuple(rows),
    )


def _idle(runs: tuple[Run, ...]) -> Figure:
    rows = []
    for run in runs:
        span = sum(rank.split.span_ns for rank in run.analysis.ranks)
        idle = sum(rank.split.idle_ns for rank in run.analysis.ranks)
        share = idle / span if span else None
        count = max(1, len(run.analysis.ranks))
        rows.append(
            Gauge(
                label=run.label,
                value=share,
                text=format_share(share),
                detail=f"{time_text(idle / count)} of {time_text(span / count)}",
            )
        )
    return Figure(
        title="Idle",
        rule="Nothing of compute, communication or copies runs; mean over ranks.",
        rows=tuple(rows),
    )
