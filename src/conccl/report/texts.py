"""Sentences and numbers that more than one reporter shows alike."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from conccl.advise.analysis import Analysis, RankAnalysis
from conccl.core.metrics import MEANINGFUL_IDEAL_SPEEDUP, Overlap
from conccl.core.units import format_bandwidth, format_bytes, format_ns
from conccl.report.names import shown
from conccl.traces.findings import OverlapEstimate, OverlappedRegion


def time_text(time_ns: float | None, /) -> str:
    """A duration on the page; a dash where it is not known.

    >>> time_text(1_500)
    '1.5 µs'
    """
    return "-" if time_ns is None else format_ns(time_ns).replace(" us", " µs")


def device_line(analysis: Analysis, /) -> str:
    """What was analysed: ranks and devices."""
    count = len(analysis.ranks)
    ranks = f"{count} rank{'' if count == 1 else 's'}"
    if analysis.world_size is not None and analysis.world_size != count:
        ranks += f" of {analysis.world_size}"
    devices = dict.fromkeys(shown(rank.device_name) for rank in analysis.ranks if rank.device_name)
    named = analysis.device and shown(analysis.device)
    return " · ".join(filter(None, [ranks, *(devices or [named or ""])]))


def window_text(analysis: Analysis, /) -> str:
    """Which rows and which time the figures are about; one text where all ranks agree."""
    windows = dict.fromkeys(rank.window for rank in analysis.ranks)
    if not windows:
        return "no rank could be read"
    text = shown(next(iter(windows)))
    return text if len(windows) == 1 else f"{text} (and {len(windows) - 1} other windows)"


PREDICTED = "~"
"""Stands before a figure that rests on predicted isolated times."""


def fraction_text(known: Overlap | OverlapEstimate | OverlappedRegion | None, /) -> str:
    """The fraction of ideal to two digits; what it is instead where it has no meaning or is not known.

    >>> fraction_text(Overlap(compute_ns=100, communication_ns=100, concurrent_ns=150))
    '0.50'
    """
    overlap = known.overlap if isinstance(known, OverlapEstimate) else known
    if overlap is None or overlap.compute_ns is None:
        return "unknown"
    fraction = overlap.fraction_of_ideal
    if fraction is None:
        return "n/a"
    return f"{PREDICTED if is_predicted(known) else ''}{fraction:.2f}"


def is_predicted(known: Overlap | OverlapEstimate | OverlappedRegion | None, /) -> bool:
    """Whether it rests on predicted isolated times."""
    return isinstance(known, (OverlapEstimate, OverlappedRegion)) and known.source == "predicted"


def range_text(estimate: OverlapEstimate, /) -> str:
    """From where to where a predicted fraction of ideal may be; empty where it is measured."""
    span = estimate.fraction_range
    return "" if span is None else f"{span[0]:.2f} to {span[1]:.2f}"


def fraction_reason(overlap: Overlap | None, /) -> str:
    """Why there is no fraction of ideal; empty where there is one."""
    if overlap is None:
        return "isolated times are not known"
    if overlap.fraction_of_ideal is None:
        return f"the ideal speedup is below {MEANINGFUL_IDEAL_SPEEDUP}: next to nothing to gain"
    return ""


def ratio_text(ratio: float | None, /) -> str:
    """A speedup or slowdown.

    >>> ratio_text(1.234)
    '1.23x'
    """
    return "-" if ratio is None else f"{ratio:.2f}x"


SMALL = 0.005
"""What is shown as 0.00."""


def settled(fraction: float, /) -> float:
    """A fraction of ideal, tiny ones as zero: one after the other is never exactly 0.

    >>> settled(-0.004)
    0.0
    """
    return 0.0 if abs(fraction) < SMALL else fraction


def value_text(field: str, value: object, /) -> str:
    """A device field's value.

    >>> value_text("peer_link.out_bandwidth", 450e9)
    '450 GB/s'
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if field.endswith("bandwidth"):
        return format_bandwidth(value)
    if field.endswith("nbytes"):
        return format_bytes(value)
    return f"{value:g}"


def heading_lines(field: str, /) -> str:
    r"""A device field's name in short lines, as the heading of a narrow column.

    >>> heading_lines("peer_link.out_bandwidth")
    'peer\nlink\nout\nbandwidth'
    """
    return field.replace(".", "_").replace("_", "\n")


def headline_ranks(analysis: Analysis, /, *, most: int) -> tuple[RankAnalysis, ...]:
    """All ranks, or those with most exposed communication where there are too many; in rank order."""
    chosen = sorted(analysis.ranks, key=lambda rank: -rank.split.communication_only_ns)[:most]
    return tuple(sorted(chosen, key=lambda rank: rank.rank))


def mean_or_none(values: Iterable[float | None], /) -> float | None:
    """The mean of the known values; None where none is known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def middle_rank(analysis: Analysis, /) -> RankAnalysis | None:
    """The rank whose fraction of ideal is the median (the lower of two); None where no rank has one."""
    known = [
        (overlap.fraction_of_ideal, rank.rank, rank)
        for rank in analysis.ranks
        if (overlap := rank.overlap.overlap) is not None and overlap.fraction_of_ideal is not None
    ]
    if not known:
        return None
    known.sort(key=lambda entry: entry[:2])
    return known[(len(known) - 1) // 2][2]


def communication_totals(analysis: Analysis, /) -> tuple[int, int, int]:
    """Communication, its hidden part and the span, each summed over ranks."""
    splits = [rank.split for rank in analysis.ranks]
    return (
        sum(split.communication_ns for split in splits),
        sum(split.both_ns for split in splits),
        sum(split.span_ns for split in splits),
    )
