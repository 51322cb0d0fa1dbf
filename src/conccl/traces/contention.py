"""What contention costs, measured inside one trace: the same kernel alone and under the other side.

Rule. Rows of equal variant (name, grid, block, recorded input shapes) and equal bytes are one kernel. An
instance under the other side for a share x of its time d does the work of (1 - x) d + x d / s of isolated
time, s being its slowdown, so that 1 - alone / d = x (1 - 1 / s): a line through the origin in x. Its slope
is fitted as the weighted median of the instances' slopes, weights x (least absolute deviations), which a few
odd instances cannot bend. ``alone`` is the median of the instances with (next to) nothing beside them; where
there is none, nothing is said. Fused kernels, being both sides at once, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Activity, Ids, Mask, Timeline, Times
from conccl.traces.breakdown import Sides
from conccl.traces.findings import Contention
from conccl.traces.integrals import Integral, Numbers, level
from conccl.traces.intervals import Intervals, distinct

ALONE_SHARE = 0.01
"""An instance counts as alone below this share of its time under the other side."""

STEEPEST = 0.95
"""A fitted 1 - 1/s at or above this (20 times slower) is not contention: the durations differ for another
reason, such as shapes that the trace does not record, and the slowdown stays unknown."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slowdowns:
    """What each row would take alone, and what the kernels' contention is."""

    rate: Numbers
    """One entry a row: isolated over concurrent time while the other side runs (1/s); NaN: not known."""
    kernels: tuple[Contention, ...]
    """By time lost, most first; the unknown last. Kernels that never met the other side are left out."""


def slowdowns(timeline: Timeline, /, *, every: Sides, rank: int, nbytes: Times, waiting: Mask) -> Slowdowns:
    """Both ways: compute under communication, and communication under compute.

    ``nbytes`` are the bytes that each row moves (0: none or not known); ``waiting`` marks the rows whose
    duration includes waiting for other ranks.
    """
    ctas = _ctas_held(timeline)
    rate = np.full(len(timeline), np.nan)
    kernels: list[Contention] = []
    for activity, other in (
        (Activity.COMPUTE, every.communication),
        (Activity.COMMUNICATION, every.compute),
    ):
        rows = np.flatnonzero((timeline.activity == activity) & (timeline.duration_ns > 0))
        if len(rows):
            groups = _groups(timeline.columns["variant"][rows], nbytes[rows])
            fit = _fit(timeline, rows, groups=groups, other=other, ctas=ctas)
            rate[rows] = fit.rate[groups]
            kernels += _records(timeline, rows, fit=fit, activity=activity, rank=rank, waiting=waiting)
    kernels.sort(key=lambda kernel: -1 if kernel.excess_ns is None else kernel.excess_ns, reverse=True)
    return Slowdowns(rate=rate, kernels=tuple(kernels))


def _ctas_held(timeline: Timeline, /) -> Integral:
    """The CTAs that communication kernels hold, over time."""
    rows = timeline.activity == Activity.COMMUNICATION
    start, end = timeline.start_ns[rows], timeline.end_ns[rows]
    edges = distinct(start, end)
    weight = timeline.columns["ctas"][rows].astype(np.float64)
    return Integral(edges_ns=edges, value=level(edges, start_ns=start, end_ns=end, weight=weight))


def _groups(variant: Ids, nbytes: Times, /) -> npt.NDArray[np.intp]:
    """A number from 0 for each row, equal where variant and bytes are."""
    order = np.lexsort((nbytes, variant))
    changes = (np.diff(variant[order]) != 0) | (np.diff(nbytes[order]) != 0)
    groups = np.empty(len(variant), dtype=np.intp)
    groups[order] = np.concatenate(([0], np.cumsum(changes)))
    return groups


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fit:
    """One entry a group."""

    first: npt.NDArray[np.intp]
    """Index into the rows of a member."""
    alone_count: npt.NDArray[np.intp]
    alone: Numbers
    alone_spread: Numbers
    beside_count: npt.NDArray[np.intp]
    beside: Numbers
    beside_spread: Numbers
    share: Numbers
    rate: Numbers
    excess: Numbers
    ctas_beside: Numbers
    """Mean CTAs of the communication that ran beside it."""


def _fit(
    timeline: Timeline,
    rows: npt.NDArray[np.intp],
    /,
    *,
    groups: npt.NDArray[np.intp],
    other: Intervals,
    ctas: Integral,
) -> _Fit:
    start, end = timeline.start_ns[rows], timeline.end_ns[rows]
    duration = (end - start).astype(np.float64)
    covered = other.coverage(start, end).astype(np.float64)
    share = covered / duration
    count = int(groups.max()) + 1
    is_alone = share <= ALONE_SHARE
    alone, alone_spread = _middle(groups[is_alone], duration[is_alone], count=count)
    beside, beside_spread = _middle(groups[~is_alone], duration[~is_alone], count=count)
    meets = ~is_alone & np.isfinite(alone[groups])
    slope = (1 - alone[groups[meets]] / duration[meets]) / share[meets]
    steepness = weighted_medians(groups[meets], slope, weights=share[meets], count=count)
    steepness[steepness >= STEEPEST] = np.nan
    with np.errstate(invalid="ignore"):
        covered_beside = np.bincount(groups, weights=covered * ~is_alone, minlength=count)
        time_beside = np.bincount(groups, weights=duration * ~is_alone, minlength=count)
        share_beside = covered_beside / time_beside
        held = np.bincount(groups, weights=ctas.between(start, end) * ~is_alone, minlength=count)
        ctas_beside = held / covered_beside
    return _Fit(
        first=np.unique(groups, return_index=True)[1],
        alone_count=np.bincount(groups[is_alone], minlength=count),
        alone=alone,
        alone_spread=alone_spread,
        beside_count=np.bincount(groups[~is_alone], minlength=count),
        beside=beside,
        beside_spread=beside_spread,
        share=share_beside,
        rate=1 - steepness,
        excess=covered_beside * steepness,
        ctas_beside=ctas_beside,
    )


def _middle(groups: npt.NDArray[np.intp], values: Numbers, /, *, count: int) -> tuple[Numbers, Numbers]:
    """Median, and interquartile range over median, of each group; NaN where it is empty."""
    order = np.lexsort((values, groups))
    values = values[order]
    sizes = np.bincount(groups, minlength=count)
    ends = np.cumsum(sizes)
    filled = sizes > 0
    quartiles = []
    for quantile in (0.25, 0.5, 0.75):
        place = (ends - sizes + (sizes - 1) * quantile)[filled]
        low = np.floor(place).astype(np.intp)
        high = np.minimum(low + 1, ends[filled] - 1)
        found = np.full(count, np.nan)
        found[filled] = values[low] + (values[high] - values[low]) * (place - low)
        quartiles.append(found)
    return quartiles[1], (quartiles[2] - quartiles[0]) / quartiles[1]


def weighted_medians(
    groups: npt.NDArray[np.intp], values: Numbers, /, *, weights: Numbers, count: int
) -> Numbers:
    """The value of each group at which half of its weight is reached; NaN where it is empty."""
    order = np.lexsort((values, groups))
    groups, values, weights = groups[order], values[order], weights[order]
    reached = np.cumsum(weights)
    totals = np.bincount(groups, weights=weights, minlength=count)
    sizes = np.bincount(groups, minlength=count)
    filled = sizes > 0
    last = np.cumsum(sizes)[filled] - 1
    half = reached[last] - totals[filled] / 2
    found = np.full(count, np.nan)
    # Rounding of the running sum must not carry the place into a neighbouring group.
    first = last - sizes[filled] + 1
    found[filled] = values[np.clip(np.searchsorted(reached, half), first, last)]
    return found


def _records(
    timeline: Timeline,
    rows: npt.NDArray[np.intp],
    /,
    *,
    fit: _Fit,
    activity: Activity,
    rank: int,
    waiting: Mask,
) -> Sequence[Contention]:
    side = "compute" if activity is Activity.COMPUTE else "communication"
    ctas = timeline.columns["ctas"]
    records = []
    for group in np.flatnonzero(fit.beside_count):
        row = rows[fit.first[group]]
        known = np.isfinite(fit.rate[group])
        alone = np.isfinite(fit.alone[group])
        records.append(
            Contention(
                rank=rank,
                name=timeline.names[timeline.name_id[row]],
                side=side,
                alone_count=int(fit.alone_count[group]),
                alone_ns=round(fit.alone[group]) if alone else None,
                alone_spread=float(fit.alone_spread[group]) if alone else None,
                overlapped_count=int(fit.beside_count[group]),
                overlapped_ns=round(fit.beside[group]),
                overlapped_spread=float(fit.beside_spread[group]),
                overlapped_share=float(fit.share[group]),
                slowdown=float(1 / fit.rate[group]) if known else None,
                excess_ns=round(fit.excess[group]) if known else None,
                ctas=(round(fit.ctas_beside[group]) if side == "compute" else int(ctas[row])) or None,
                waits=bool(waiting[row]),
            )
        )
    return records
