"""Exposed communication, named: which collective, between which compute kernels, and what might cover it.

Rules. A communication row is exposed while no compute runs. It lies between the compute kernel that ended
last before its longest exposed stretch and the one that started first after it. A compute kernel that might
cover the stretch is a candidate, named with what the trace shows:

- it was launched after the collective, yet had finished before the stretch began: it does not feed the
  collective (launched later) and does not wait for it (finished earlier);
- the collective started as soon as the host had launched it, so that it waited for no kernel: launched
  earlier it would run beside the kernel that was running then. Whether its input was ready the trace does
  not show.

Where neither holds there is no candidate: that a kernel ran later does not show that it could run earlier.
Nor can more be covered than there is compute: of a step's exposed time at most as much as its compute that
runs without communication.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Activity, Ids, Mask, Timeline, Times
from conccl.traces.breakdown import Sides, computes
from conccl.traces.columns import grouped
from conccl.traces.findings import ExposedCommunication
from conccl.traces.intervals import Intervals

KEPT = 32
"""Exposed collectives that are named, a rank."""

WORTH = 0.1
"""A candidate lasts at least this share of the exposed stretch."""

PROMPT_NS = 30_000
"""A row that starts within this of its launch waited for nothing on the GPU: a launch takes 5-20 us."""

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exposed:
    """The findings, and which rows they are about."""

    findings: tuple[ExposedCommunication, ...]
    """The most exposed first."""
    exposed_ns: Times
    """One entry a row of the timeline: 0 where it is no communication or all of it is covered."""
    finding: Ids
    """One entry a row: the place of its finding; -1: none, or not kept."""


def exposed_communication(
    timeline: Timeline,
    /,
    *,
    every: Sides,
    rank: int,
    origin_ns: int,
    among: Mask | None = None,
    coverable: npt.NDArray[np.float64] | None = None,
    keep: int = KEPT,
) -> Exposed:
    """Calls of the same communication between the same kernels together, the most exposed first.

    ``origin_ns`` is where the rank's window begins; ``among`` limits the communication to these rows;
    ``coverable`` is for each row the share of its exposed time for which there is compute.
    The findings' ``step`` is the index that the rows' column has.
    """
    chosen = timeline.activity == Activity.COMMUNICATION
    rows = np.flatnonzero(chosen if among is None else chosen & among)
    start, end = timeline.start_ns[rows], timeline.end_ns[rows]
    exposed = (end - start) - every.compute.coverage(start, end)
    rows, exposed = rows[exposed > 0], exposed[exposed > 0]
    row_exposed = np.zeros(len(timeline), dtype=np.int64)
    row_exposed[rows] = exposed
    row_finding = np.full(len(timeline), -1, dtype=np.int32)
    covering = exposed * (1.0 if coverable is None else coverable[rows])
    if not len(rows):
        return Exposed(findings=(), exposed_ns=row_exposed, finding=row_finding)
    stretch = _longest_stretches(timeline.start_ns[rows], timeline.end_ns[rows], covered=every.compute)
    compute = _Compute(timeline)
    before, after = compute.before(stretch.start_ns), compute.after(stretch.end_ns)
    groups = grouped(timeline.name_id[rows], compute.names(before), compute.names(after))
    summed = np.bincount(groups, weights=exposed)
    found: list[ExposedCommunication] = []
    for group in np.argsort(-summed, kind="stable")[:keep]:
        members = np.flatnonzero(groups == group)
        row_finding[rows[members]] = len(found)
        worst = members[np.argmax(exposed[members])]
        row, first, last = rows[worst], int(stretch.start_ns[worst]), int(stretch.end_ns[worst])
        candidate = compute.candidate(int(row), start_ns=first, end_ns=last)
        step = int(timeline.columns["step"][row])
        found.append(
            ExposedCommunication(
                rank=rank,
                step=None if step < 0 else step,
                name=timeline.names[timeline.name_id[row]],
                calls=len(members),
                exposed_ns=int(exposed[members].sum()),
                wait_ns=None,
                coverable_ns=round(float(covering[members].sum())),
                start_ns=first - origin_ns,
                stretch_ns=last - first,
                before=compute.name(int(before[worst])),
                after=compute.name(int(after[worst])),
                candidate=None if candidate is None else compute.name(candidate.row),
                candidate_ns=None if candidate is None else int(timeline.duration_ns[candidate.row]),
                evidence=None if candidate is None else candidate.evidence,
            )
        )
    return Exposed(findings=tuple(found), exposed_ns=row_exposed, finding=row_finding)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    row: int
    evidence: str


class _Compute:
    """The compute rows of a timeline, by start and by end."""

    def __init__(self, timeline: Timeline, /) -> None:
        self._timeline = timeline
        rows = np.flatnonzero(computes(timeline.activity) & (timeline.duration_ns > 0))
        self._by_start = rows[np.argsort(timeline.start_ns[rows], kind="stable")]
        self._starts = timeline.start_ns[self._by_start]
        self._by_end = rows[np.argsort(timeline.end_ns[rows], kind="stable")]
        self._ends = timeline.end_ns[self._by_end]

    def before(self, moments_ns: Times, /) -> Rows:
        """The row that ended last until each moment; -1: none."""
        place = np.searchsorted(self._ends, moments_ns, side="right") - 1
        return np.append(self._by_end, -1)[place]

    def after(self, moments_ns: Times, /) -> Rows:
        """The row that started first from each moment on; -1: none."""
        return np.append(self._by_start, -1)[np.searchsorted(self._starts, moments_ns, side="left")]

    def names(self, rows: Rows, /) -> Rows:
        """Each row's name id; -1 where there is no row."""
        return np.where(rows >= 0, self._timeline.name_id[rows], -1)

    def name(self, row: int, /) -> str | None:
        return None if row < 0 else self._timeline.names[self._timeline.name_id[row]]

    def candidate(self, row: int, /, *, start_ns: int, end_ns: int) -> _Candidate | None:
        """What might cover the stretch [start, end) of this communication row."""
        launch_ns = self._timeline.columns["launch_ns"]
        launched = int(launch_ns[row])
        if launched < 0:
            return None
        length = end_ns - start_ns
        done = self._ended(after_ns=launched, until_ns=start_ns)
        overtaken = self._longest(done[launch_ns[done] > launched], at_least_ns=WORTH * length)
        if overtaken is not None:
            return _Candidate(
                row=overtaken,
                evidence="launched after it and finished before it: neither feeds it nor waits for it",
            )
        began = int(self._timeline.start_ns[row])
        if began - launched > PROMPT_NS:
            return None
        near = self._ended(after_ns=launched - length, until_ns=end_ns)
        near = near[self._timeline.start_ns[near] < launched]
        beside = self._longest(near, at_least_ns=WORTH * length)
        if beside is None:
            return None
        return _Candidate(
            row=beside,
            evidence="ran just before the host launched it; independent if its input was ready by then,"
            " which the trace does not show",
        )

    def _ended(self, /, *, after_ns: float, until_ns: int) -> Rows:
        first = np.searchsorted(self._ends, after_ns, side="right")
        last = np.searchsorted(self._ends, until_ns, side="right")
        return self._by_end[first:last]

    def _longest(self, rows: Rows, /, *, at_least_ns: float) -> int | None:
        if not len(rows):
            return None
        duration = self._timeline.duration_ns[rows]
        most = int(np.argmax(duration))
        return int(rows[most]) if duration[most] >= at_least_ns else None


def _longest_stretches(start_ns: Times, end_ns: Times, /, *, covered: Intervals) -> Intervals:
    """Of each row [start, end), the longest stretch that nothing covers; every row must have one."""
    far = np.iinfo(np.int64)
    gap_start = np.concatenate(([far.min], covered.end_ns))
    gap_end = np.concatenate((covered.start_ns, [far.max]))
    first = np.searchsorted(gap_end, start_ns, side="right")
    count = np.searchsorted(gap_start, end_ns, side="left") - first
    row = np.repeat(np.arange(len(start_ns)), count)
    gap = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    left = np.maximum(gap_start[gap], start_ns[row])
    right = np.minimum(gap_end[gap], end_ns[row])
    order = np.lexsort((right - left, row))
    longest = order[np.cumsum(count) - 1]
    return Intervals(start_ns=left[longest], end_ns=right[longest])
