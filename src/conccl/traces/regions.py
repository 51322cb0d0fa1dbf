"""How far from ideal the overlap of a window was, from what its kernels take alone.

Rules. While only one side runs, time passes for it as it does alone. While both run, a kernel of slowdown s
gets 1/s of a ns done in each ns; where several kernels of one side run at once, the side goes at their mean
rate. The isolated time of a side is what it got done; the concurrent time is that in which compute or
communication ran (idle time and mere copies are no part of overlap). A region is a stretch of uninterrupted
communication (breaks below 10 us, as between launches, do not end it) in which some compute ran too; it
costs what contention kept the side from doing in it that is busy longer over the whole window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from conccl.core.metrics import Overlap
from conccl.core.timeline import Ids, Timeline, Times
from conccl.traces.breakdown import Sides, communicates, computes
from conccl.traces.findings import OverlapEstimate, OverlappedRegion
from conccl.traces.integrals import Integral, Numbers, Rows, between
from conccl.traces.intervals import distinct

BREAK_NS = 10_000
"""Shorter breaks between communication kernels do not end a region."""

NEGLIGIBLE = 0.05
"""Kernels without a known slowdown count as not slowed up to this share of the time that both sides run
together; above it the window's isolated times are unknown."""

REGIONS_KEPT = 32
NAMES_KEPT = 4


class Work(NamedTuple):
    """What happened up to a moment, or in a window: integrals over time, or their values in ns."""

    compute: Any
    """Isolated time of compute that was done."""
    communication: Any
    computing: Any
    """Time in which compute ran."""
    communicating: Any
    both: Any
    unknown: Any
    """Time in which both ran and some kernel's isolated time is not known."""
    predicted: Any
    """Time in which both ran and some kernel's isolated time is a prediction."""
    compute_doubt: Any
    """How far off ``compute`` may be, as far as it rests on predictions."""
    communication_doubt: Any

    @property
    def busy(self) -> Any:
        """Time in which either ran."""
        return self.computing + self.communicating - self.both

    @property
    def compute_lost(self) -> Any:
        """Compute that contention kept from being done."""
        return self.computing - self.compute

    @property
    def communication_lost(self) -> Any:
        """Communication that contention kept from being done."""
        return self.communicating - self.communication

    @property
    def source(self) -> str:
        """Where the isolated times are from."""
        return "predicted" if self.predicted else "measured"

    @property
    def known(self) -> bool:
        """Whether enough of the isolated times is known to speak of them."""
        return bool(self.unknown <= NEGLIGIBLE * self.both)

    def estimate(self) -> OverlapEstimate:
        """The isolated times against the busy time, if enough of them is known."""
        unknown_ns = round(self.unknown)
        if not self.known:
            return OverlapEstimate(overlap=None, source="unknown", unknown_ns=unknown_ns)
        overlap = Overlap(
            compute_ns=round(self.compute),
            communication_ns=round(self.communication),
            concurrent_ns=round(self.busy),
        )
        return OverlapEstimate(
            overlap=overlap,
            source=self.source,
            unknown_ns=unknown_ns,
            predicted_ns=round(self.predicted),
            compute_uncertainty_ns=round(self.compute_doubt),
            communication_uncertainty_ns=round(self.communication_doubt),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IsolatedWork:
    """What each side got done in any window, in ns of isolated time."""

    _integrals: Work

    def within(self, start_ns: Times, end_ns: Times, /) -> tuple[Work, ...]:
        """What happened in each window [start, end)."""
        columns = [column.tolist() for column in between(self._integrals, start_ns, end_ns)]
        return tuple(Work(*figures) for figures in zip(*columns, strict=True))

    def within_all(self, start_ns: Times, end_ns: Times, /) -> Work:
        """What happened in all windows [start, end) together."""
        return Work(*(float(column.sum()) for column in between(self._integrals, start_ns, end_ns)))

    def within_groups(
        self, groups: npt.NDArray[np.intp], start_ns: Times, end_ns: Times, /
    ) -> tuple[Work, ...]:
        """What happened in the windows of each group (numbered from 0) together."""
        columns = [
            np.bincount(groups, weights=column).tolist()
            for column in between(self._integrals, start_ns, end_ns)
        ]
        return tuple(Work(*figures) for figures in zip(*columns, strict=True))


def isolated_work(timeline: Timeline, /, *, rate: Numbers, doubt: Numbers | None = None) -> IsolatedWork:
    """From each row's isolated over concurrent time (1/s; NaN: not known), what got done when.

    ``doubt`` says of rows whose rate is predicted how far off it may be; NaN: measured. None: all are.
    """
    start, end = timeline.start_ns, timeline.end_ns
    edges = distinct(start, end) if len(start) else np.zeros(1, dtype=np.int64)
    all_rows = Rows.among(edges, start_ns=start, end_ns=end)
    known = np.isfinite(rate)
    rate = np.where(known, rate, 1.0)
    compute, communication = computes(timeline.activity), communicates(timeline.activity)

    def running(rows: npt.NDArray[np.bool_], weight: Numbers | None = None) -> Numbers:
        return all_rows.level(chosen=rows, weight=weight)

    computing, communicating = running(compute), running(communication)
    both = (computing > 0) & (communicating > 0)
    unknown = running((compute | communication) & ~known) > 0
    sides = (("compute", compute, computing), ("communication", communication, communicating))
    speed = {
        side: np.where(both, running(rows, rate) / np.maximum(count, 1), count > 0)
        for side, rows, count in sides
    }
    guessed = np.zeros(len(edges) - 1)
    doubts = dict.fromkeys(speed, guessed)
    if doubt is not None:
        guessed = running(np.isfinite(doubt) & (compute | communication))
        doubts = {
            side: both * running(rows, np.nan_to_num(doubt)) / np.maximum(count, 1)
            for side, rows, count in sides
        }

    def integral(value: npt.NDArray[Any]) -> Integral:
        return Integral(edges_ns=edges, value=value.astype(np.float64))

    return IsolatedWork(
        _integrals=Work(
            compute=integral(speed["compute"]),
            communication=integral(speed["communication"]),
            computing=integral(computing > 0),
            communicating=integral(communicating > 0),
            both=integral(both),
            unknown=integral(both & unknown),
            predicted=integral(both & (guessed > 0)),
            compute_doubt=integral(doubts["compute"]),
            communication_doubt=integral(doubts["communication"]),
        )
    )


def overlapped_regions(
    timeline: Timeline,
    /,
    *,
    every: Sides,
    work: IsolatedWork,
    rank: int,
    window_ns: tuple[int, int],
    keep: int = REGIONS_KEPT,
) -> tuple[OverlappedRegion, ...]:
    """The regions within the rank's window that cost most, then those of unknown cost by length.

    Stretches whose longest kernels are the same are one region.

    The findings' ``step`` is the index that the rows' column has.
    """
    start, end = _stretches(every.within(*window_ns))
    if not len(start):
        return ()
    whole = work.within_all(np.array(window_ns[:1]), np.array(window_ns[1:]))
    stretches = work.within(start, end)
    known = np.array([each.known for each in stretches])
    cost = np.array([_cost(each, whole=whole) for each in stretches])
    keys = np.stack([known, *_longest_names(timeline, start, end)], axis=1)
    groups = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    costs, lengths = np.bincount(groups, weights=cost), np.bincount(groups, weights=end - start)
    group_known = np.bincount(groups, weights=known) > 0
    together = work.within_groups(groups, start, end)
    found = []
    for group in np.lexsort((lengths, costs, group_known))[::-1][:keep]:
        members = np.flatnonzero(groups == group)
        worst = members[np.lexsort(((end - start)[members], cost[members]))[-1]]
        names = _names(timeline, int(start[worst]), int(end[worst]))
        done, is_known = together[group], bool(group_known[group])
        found.append(
            OverlappedRegion(
                rank=rank,
                step=names.step,
                start_ns=int(start[worst]) - window_ns[0],
                count=len(members),
                concurrent_ns=round(done.both),
                compute=names.compute,
                communication=names.communication,
                compute_ns=round(done.both - done.compute_lost) if is_known else None,
                communication_ns=round(done.both - done.communication_lost) if is_known else None,
                source=done.source if is_known else "unknown",
                unknown_ns=round(done.unknown),
                cost_ns=round(costs[group]) if is_known else None,
                cost_uncertainty_ns=round(_doubt(done, whole=whole)) if is_known else 0,
                compute_uncertainty_ns=round(done.compute_doubt) if is_known else 0,
                communication_uncertainty_ns=round(done.communication_doubt) if is_known else 0,
            )
        )
    return tuple(found)


def _stretches(every: Sides, /) -> tuple[Times, Times]:
    """Communication without breaks, where some compute runs under it."""
    communication = every.communication
    if not len(communication):
        return communication.start_ns, communication.end_ns
    breaks = communication.start_ns[1:] - communication.end_ns[:-1] >= BREAK_NS
    start = communication.start_ns[np.concatenate(([True], breaks))]
    end = communication.end_ns[np.concatenate((breaks, [True]))]
    meets = every.both.coverage(start, end) > 0
    return start[meets], end[meets]


def _cost(work: Work, /, *, whole: Work) -> float:
    """What the side lost that is busy longer in the whole window; 0 where that is not known."""
    if not work.known:
        return 0.0
    if whole.computing >= whole.communicating:
        return float(work.compute_lost)
    return float(work.communication_lost)


def _doubt(work: Work, /, *, whole: Work) -> float:
    """How far off that may be."""
    if whole.computing >= whole.communicating:
        return float(work.compute_doubt)
    return float(work.communication_doubt)


def _longest_names(timeline: Timeline, start_ns: Times, end_ns: Times, /) -> list[Ids]:
    """For each of these disjoint stretches, the name that computes longest, and that communicates longest."""
    found = []
    for side in (computes(timeline.activity), communicates(timeline.activity)):
        rows = np.flatnonzero(side)
        first = np.searchsorted(end_ns, timeline.start_ns[rows], side="right")
        count = np.maximum(np.searchsorted(start_ns, timeline.end_ns[rows], side="left") - first, 0)
        row = np.repeat(rows, count)
        place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count - first, count)
        inside = np.minimum(timeline.end_ns[row], end_ns[place]) - np.maximum(
            timeline.start_ns[row], start_ns[place]
        )
        pair = place * len(timeline.names) + timeline.name_id[row]
        pairs, which = np.unique(pair, return_inverse=True)
        summed = np.bincount(which, weights=inside)
        longest = np.full(len(start_ns), -1, dtype=np.int32)
        by_length = np.argsort(summed, kind="stable")  # later ones overwrite shorter ones
        longest[pairs[by_length] // len(timeline.names)] = pairs[by_length] % len(timeline.names)
        found.append(longest)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    compute: tuple[str, ...]
    communication: tuple[str, ...]
    step: int | None


def _names(timeline: Timeline, start_ns: int, end_ns: int, /) -> _Names:
    """What ran in [start, end), longest first, and the step of the communication that ran longest."""
    inside = np.minimum(timeline.end_ns, end_ns) - np.maximum(timeline.start_ns, start_ns)
    rows = np.flatnonzero(inside > 0)
    inside, activity = inside[rows], timeline.activity[rows]

    def longest(side: npt.NDArray[np.bool_]) -> tuple[str, ...]:
        summed = np.bincount(timeline.name_id[rows[side]], weights=inside[side])
        most = np.argsort(-summed, kind="stable")[:NAMES_KEPT]
        return tuple(timeline.names[name] for name in most if summed[name] > 0)

    communication = communicates(activity)
    longest_row = rows[communication][int(np.argmax(inside[communication]))]
    step = int(timeline.columns["step"][longest_row])
    return _Names(
        compute=longest(computes(activity)),
        communication=longest(communication),
        step=None if step < 0 else step,
    )
