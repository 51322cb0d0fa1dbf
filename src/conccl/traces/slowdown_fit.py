"""Fits the slowdown under full overlap from instances that were overlapped in part.

An instance under the other side for a share x of its time d does the work of (1 - x) d + x d / s of isolated
time, s being its slowdown, so that 1 - alone / d = x (1 - 1 / s): a line through the origin in x. The typical
slowdown is the slope of least absolute deviations, which is the weighted median of the instances' slopes
with weights x: a few odd instances cannot bend it. What was lost in all is a sum, and there the odd
instances count: d - alone over all of them. ``alone`` is the median of the instances with (next to) nothing
beside them; where there is none, nothing is said.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.traces.findings import Contention

ALONE_SHARE = 0.01
"""An instance counts as alone below this share of its time under the other side."""

STEEPEST = 0.95
"""A fitted 1 - 1/s at or above this (20 times slower) is not contention: the durations differ for another
reason, such as shapes that the trace does not record, and the slowdown stays unknown."""

Numbers = npt.NDArray[np.float64]
Groups = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """What instances of each group say; one entry a group, NaN where nothing is known."""

    alone_count: Groups
    alone: Numbers
    alone_spread: Numbers
    beside_count: Groups
    beside: Numbers
    beside_spread: Numbers
    share: Numbers
    slowdown: Numbers
    """Typical time under full overlap over time alone: s."""
    excess: Numbers
    """What all instances took longer than alone, together."""
    rate: Numbers
    """Isolated over concurrent time while the other side runs, such that all instances together lose that."""

    def contention(
        self, group: int, /, *, rank: int | None, name: str, side: str, ctas: int | None, waits: bool
    ) -> Contention:
        """One group as a finding."""
        known, alone = np.isfinite(self.slowdown[group]), np.isfinite(self.alone[group])
        return Contention(
            rank=rank,
            name=name,
            side=side,
            alone_count=int(self.alone_count[group]),
            alone_ns=round(self.alone[group]) if alone else None,
            alone_spread=float(self.alone_spread[group]) if alone else None,
            overlapped_count=int(self.beside_count[group]),
            overlapped_ns=round(self.beside[group]),
            overlapped_spread=float(self.beside_spread[group]),
            overlapped_share=float(self.share[group]),
            slowdown=float(self.slowdown[group]) if known else None,
            excess_ns=round(self.excess[group]) if known else None,
            ctas=ctas,
            waits=waits,
        )


def fit(groups: Groups, /, *, duration: Numbers, covered: Numbers) -> Fit:
    """Fit each group (numbered from 0) from its instances' durations and how much of each was overlapped."""
    share = covered / duration
    count = int(groups.max(initial=-1)) + 1
    is_alone = share <= ALONE_SHARE
    alone, alone_spread = _middle(groups[is_alone], duration[is_alone], count=count)
    beside, beside_spread = _middle(groups[~is_alone], duration[~is_alone], count=count)
    meets = ~is_alone & np.isfinite(alone[groups])
    slope = (1 - alone[groups[meets]] / duration[meets]) / share[meets]
    steepness = weighted_medians(groups[meets], slope, weights=share[meets], count=count)
    steepness[steepness >= STEEPEST] = np.nan
    covered_beside = np.bincount(groups, weights=covered * ~is_alone, minlength=count)
    time_beside = np.bincount(groups, weights=duration * ~is_alone, minlength=count)
    beside_count = np.bincount(groups[~is_alone], minlength=count)
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = np.where(np.isfinite(steepness), time_beside - beside_count * alone, np.nan)
        rate = np.clip(1 - excess / covered_beside, 1 - STEEPEST, None)
        share_beside = covered_beside / time_beside
    return Fit(
        alone_count=np.bincount(groups[is_alone], minlength=count),
        alone=alone,
        alone_spread=alone_spread,
        beside_count=beside_count,
        beside=beside,
        beside_spread=beside_spread,
        share=share_beside,
        slowdown=1 / (1 - steepness),
        excess=excess,
        rate=rate,
    )


def _middle(groups: Groups, values: Numbers, /, *, count: int) -> tuple[Numbers, Numbers]:
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


def weighted_medians(groups: Groups, values: Numbers, /, *, weights: Numbers, count: int) -> Numbers:
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
