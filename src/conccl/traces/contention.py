"""What contention costs, measured inside one trace: the same kernel alone and under the other side.

Rule. Rows of equal variant (name, grid, block, recorded input shapes) and equal bytes are one kernel; its
slowdown is what `conccl.traces.slowdown_fit` fits. Fused kernels, being both sides at once, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Activity, Mask, Timeline, Times
from conccl.traces.breakdown import Sides
from conccl.traces.columns import grouped
from conccl.traces.findings import Contention
from conccl.traces.integrals import Integral, Numbers, Rows
from conccl.traces.intervals import distinct
from conccl.traces.slowdown_fit import Fit, fit


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slowdowns:
    """What each row would take alone, and what the kernels' contention is."""

    rate: Numbers
    """One entry a row: isolated over concurrent time while the other side runs (1/s); NaN: not known."""
    group: npt.NDArray[np.intp]
    """One entry a row: equal for rows of one kernel; -1: of neither side, or without duration."""
    alone_ns: Numbers
    """One entry a row: median duration of its kernel's instances alone; NaN: there are none."""
    kernels: tuple[Contention, ...]
    """By time lost, most first; the unknown last. Kernels that never met the other side are left out."""
    kernel_group: tuple[int, ...]
    """The group that each of ``kernels`` is about."""


def slowdowns(timeline: Timeline, /, *, every: Sides, rank: int, nbytes: Times, waiting: Mask) -> Slowdowns:
    """Both ways: compute under communication, and communication under compute.

    ``nbytes`` are the bytes that each row moves (0: none or not known); ``waiting`` marks the rows whose
    duration includes waiting for other ranks.
    """
    held = _ctas_held(timeline)
    rate, alone_ns = np.full((2, len(timeline)), np.nan)
    group = np.full(len(timeline), -1, dtype=np.intp)
    kernels: list[tuple[int, Contention]] = []
    count = 0
    for activity, other in (
        (Activity.COMPUTE, every.communication),
        (Activity.COMMUNICATION, every.compute),
    ):
        rows = np.flatnonzero((timeline.activity == activity) & (timeline.duration_ns > 0))
        start, end = timeline.start_ns[rows], timeline.end_ns[rows]
        covered = other.coverage(start, end).astype(np.float64)
        groups = grouped(timeline.columns["variant"][rows], nbytes[rows])
        found = fit(groups, duration=(end - start).astype(np.float64), covered=covered)
        rate[rows], alone_ns[rows], group[rows] = found.rate[groups], found.alone[groups], groups + count
        of_side = _records(
            timeline,
            rows,
            groups=groups,
            found=found,
            ctas_beside=_mean(groups, held.between(start, end), over=covered),
            side=activity.name.lower(),
            rank=rank,
            waiting=waiting,
        )
        kernels += ((count + each, kernel) for each, kernel in of_side)
        count += len(found.rate)
    kernels.sort(key=lambda entry: (entry[1].excess_ns is not None, entry[1].excess_ns or 0), reverse=True)
    return Slowdowns(
        rate=rate,
        group=group,
        alone_ns=alone_ns,
        kernels=tuple(kernel for _, kernel in kernels),
        kernel_group=tuple(each for each, _ in kernels),
    )


def _mean(groups: npt.NDArray[np.intp], integral: Numbers, /, *, over: Numbers) -> Numbers:
    """Of each group, what was held on average over the time; 0 where there is none."""
    summed, time = np.bincount(groups, weights=integral), np.bincount(groups, weights=over)
    return np.divide(summed, time, out=np.zeros(len(time)), where=time > 0)


def _ctas_held(timeline: Timeline, /) -> Integral:
    """The CTAs that communication kernels hold, over time."""
    rows = timeline.activity == Activity.COMMUNICATION
    start, end = timeline.start_ns[rows], timeline.end_ns[rows]
    edges = distinct(start, end)
    weight = timeline.columns["ctas"][rows].astype(np.float64)
    held = Rows.among(edges, start_ns=start, end_ns=end).level(weight=weight)
    return Integral(edges_ns=edges, value=held)


def _records(
    timeline: Timeline,
    rows: npt.NDArray[np.intp],
    /,
    *,
    groups: npt.NDArray[np.intp],
    found: Fit,
    ctas_beside: Numbers,
    side: str,
    rank: int,
    waiting: Mask,
) -> Iterator[tuple[int, Contention]]:
    """Each group that met the other side, with what is known of it."""
    first = np.unique(groups, return_index=True)[1]
    for group in np.flatnonzero(found.beside_count):
        row = rows[first[group]]
        ctas = ctas_beside[group] if side == "compute" else timeline.columns["ctas"][row]
        kernel = found.contention(
            int(group),
            rank=rank,
            name=timeline.names[timeline.name_id[row]],
            side=side,
            ctas=round(float(ctas)) or None,
            waits=bool(waiting[row]),
        )
        yield int(group), kernel
