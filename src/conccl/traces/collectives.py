"""Waiting against transfer: what collectives took on all ranks, who came last, and how fast bytes moved.

Rules. All ranks leave a synchronising collective together, so the rank that came last shows the transfer:
its duration, the shortest, is the transfer of all, and what another rank took longer it waited. algbw and
busbw (as nccl-tests defines them) are on the transfer. Calls that are not matched have neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from conccl.core import metrics
from conccl.core.timeline import Times
from conccl.traces.findings import CollectiveSummary, Straggler
from conccl.traces.matching import CallLabel, Matches, RankCalls

SIZES_KEPT = 16
"""Collectives of one kernel and group called with more different sizes are counted together."""


Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrivals:
    """Matched calls over their ranks: one entry a match. Calls that do not synchronise are left out."""

    members: Times
    """Ranks that took part; 0 where the call does not synchronise."""
    transfer_ns: Times
    """The shortest duration."""
    summed_ns: Times
    """Durations of all ranks together."""
    last_rank: Times
    skew_ns: Times
    """Last start minus first start, on one clock."""
    numbers: Mapping[int, Rows]
    """For each rank, which match each of its calls is; -1: none."""

    def split(self, calls: RankCalls, /) -> Waiting:
        """One rank's calls, split."""
        numbers = self.numbers[calls.rank]
        known = numbers >= 0
        transfer = np.where(known, np.append(self.transfer_ns, 0)[numbers], 0)
        return Waiting(
            known=known,
            transfer_ns=transfer,
            wait_ns=np.where(known, calls.end_ns - calls.start_ns - transfer, 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waiting:
    """One rank's calls, each split into transfer and waiting."""

    known: npt.NDArray[np.bool_]
    """Which calls are matched; the others count 0."""
    transfer_ns: Times
    wait_ns: Times


def arrivals(ranks: Sequence[RankCalls], matches: Matches, /, *, offsets_ns: Mapping[int, int]) -> Arrivals:
    """Who came when; ``offsets_ns`` are what each rank's clock is ahead."""
    count, far = matches.count, np.iinfo(np.int64)
    shortest, first, last = np.full(count, far.max), np.full(count, far.max), np.full(count, far.min)
    last_rank, summed, members = np.full(count, -1), np.zeros(count, np.int64), np.zeros(count, np.int64)
    numbers_of = {}
    for calls in ranks:
        numbers = matches.of_rank[calls.rank]
        together = np.array([label.synchronises for label in calls.labels] + [False], dtype=np.bool_)
        numbers_of[calls.rank] = numbers = np.where(together[calls.label], numbers, -1)
        rows = np.flatnonzero(numbers >= 0)
        at, duration = numbers[rows], (calls.end_ns - calls.start_ns)[rows]
        start = calls.start_ns[rows] - offsets_ns.get(calls.rank, 0)
        last_rank[at[duration < shortest[at]]] = calls.rank
        shortest[at] = np.minimum(shortest[at], duration)
        first[at], last[at] = np.minimum(first[at], start), np.maximum(last[at], start)
        summed[at] += duration
        members[at] += 1
    return Arrivals(
        members=members,
        transfer_ns=shortest,
        summed_ns=summed,
        last_rank=last_rank,
        skew_ns=np.where(members > 0, last - np.where(members > 0, first, last), 0),
        numbers=numbers_of,
    )


def stragglers(arrived: Arrivals, /) -> tuple[Straggler, ...]:
    """Who came last (whose call was the shortest), and what the others waited for it on average."""
    real = arrived.members > 1
    caused = np.zeros(len(real), dtype=np.int64)
    others = arrived.members[real] - 1
    caused[real] = (arrived.summed_ns - arrived.members * arrived.transfer_ns)[real] // others
    found = []
    for rank, numbers in arrived.numbers.items():
        mine = arrived.last_rank == rank
        straggler = Straggler(
            rank=rank,
            last=int(mine.sum()),
            matched=int((numbers >= 0).sum()),
            caused_ns=int(caused[mine].sum()),
        )
        if straggler.caused_ns > 0:
            found.append(straggler)
    return tuple(sorted(found, key=lambda straggler: (-straggler.caused_ns, straggler.rank)))


def summaries(
    ranks: Sequence[RankCalls], arrived: Arrivals, /, *, clocks_agree: bool, world_size: int | None = None
) -> tuple[CollectiveSummary, ...]:
    """One row for each collective (kernel, kind, group, bytes), the longest first.

    Calls that all ranks of the world take part in have that many ranks, whatever their metadata leaves out.
    """
    parts: dict[CallLabel, list[_Part]] = defaultdict(list)
    merged = _merged_labels({label for calls in ranks for label in calls.labels})
    for calls in ranks:
        split = arrived.split(calls)
        for index, label in enumerate(calls.labels):
            rows = np.flatnonzero(calls.label == index)
            if len(rows):
                parts[merged[label]].append(_part(calls, label, rows, split=split, arrived=arrived))
    found = [
        _summary(label, members, arrived=arrived, clocks_agree=clocks_agree, world_size=world_size)
        for label, members in parts.items()
    ]
    return tuple(sorted(found, key=lambda summary: (-summary.duration_ns, summary.name)))


def _merged_labels(labels: set[CallLabel], /) -> dict[CallLabel, CallLabel]:
    """Each label as it is, or without its bytes where the same collective has too many sizes."""
    sizes: dict[CallLabel, set[int | None]] = defaultdict(set)
    for label in labels:
        sizes[replace(label, nbytes=None)].add(label.nbytes)
    merged = {}
    for label in labels:
        sizeless = replace(label, nbytes=None)
        merged[label] = sizeless if len(sizes[sizeless]) > SIZES_KEPT else label
    return merged


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """One rank's calls with one label, summed."""

    rank: int
    nbytes: int | None
    """Of one call."""
    calls: int
    duration_ns: int
    matches: Rows
    """Numbers of the matched calls."""
    transfer_ns: int
    wait_ns: int
    ctas: int


def _part(calls: RankCalls, label: CallLabel, rows: Rows, /, *, split: Waiting, arrived: Arrivals) -> _Part:
    numbers = arrived.numbers[calls.rank][rows]
    return _Part(
        rank=calls.rank,
        nbytes=label.nbytes,
        calls=len(rows),
        duration_ns=int((calls.end_ns - calls.start_ns)[rows].sum()),
        matches=numbers[numbers >= 0],
        transfer_ns=int(split.transfer_ns[rows].sum()),
        wait_ns=int(split.wait_ns[rows].sum()),
        ctas=int(calls.ctas[rows].max()),
    )


def _summary(
    label: CallLabel,
    parts: Sequence[_Part],
    /,
    *,
    arrived: Arrivals,
    clocks_agree: bool,
    world_size: int | None,
) -> CollectiveSummary:
    ranks = len({part.rank for part in parts})
    matched = sum(len(part.matches) for part in parts)
    met = np.unique(np.concatenate([part.matches for part in parts]))
    transfer = sum(part.transfer_ns for part in parts)
    size = label.group_size or (len(label.group_ranks) if label.group_ranks else None)
    if size is None and matched and (arrived.members[met] == world_size).all():
        size = world_size
    algbw = busbw = None
    if transfer and all(part.nbytes for part in parts):
        nbytes = sum((part.nbytes or 0) * len(part.matches) for part in parts)
        algbw = metrics.algbw(nbytes=nbytes, time_ns=transfer)
        if label.kind is not None and size is not None:
            busbw = metrics.busbw(kind=label.kind, nbytes=nbytes, ranks=size, time_ns=transfer)
    return CollectiveSummary(
        name=label.name,
        kind=None if label.kind is None else str(label.kind),
        group=label.group,
        ranks=size,
        nbytes=label.nbytes,
        calls=sum(part.calls for part in parts),
        matched=matched,
        duration_ns=sum(part.duration_ns for part in parts) // ranks,
        transfer_ns=transfer // ranks if matched else None,
        wait_ns=sum(part.wait_ns for part in parts) // ranks if matched else None,
        skew_ns=round(float(np.median(arrived.skew_ns[met]))) if matched and clocks_agree else None,
        last_rank=int(np.bincount(arrived.last_rank[met]).argmax()) if matched else None,
        algbw=algbw,
        busbw=busbw,
        ctas=max(part.ctas for part in parts) or None,
    )
