"""Whether ranks share a clock: all leave a synchronising collective together, so its ends must agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Times
from conccl.traces.findings import ClockCheck
from conccl.traces.matching import SHARED_CLOCK_NS, Matches, RankCalls

_Ends = Mapping[int, tuple[npt.NDArray[np.intp], Times]]
"""For each rank the matches it is part of, sorted, and when it left them."""


def check_clocks(ranks: Sequence[RankCalls], matches: Matches, /) -> ClockCheck | None:
    """Compare the ends of matched synchronising calls; None where there are none.

    Where they are further apart than clocks of one host are, each rank's offset is the median of its ends
    against those of a rank that is known already, beginning with the first.
    """
    ends = {calls.rank: _ends(calls, matches.of_rank[calls.rank]) for calls in ranks}
    spread = _spreads(ends, count=matches.count)
    if not len(spread):
        return None
    apart = round(float(np.median(spread)))
    offsets = dict.fromkeys(ends, 0)
    residual = apart
    if apart > SHARED_CLOCK_NS:
        offsets = _offsets(ends)
        moved = {rank: (numbers, times - offsets[rank]) for rank, (numbers, times) in ends.items()}
        residual = round(float(np.median(_spreads(moved, count=matches.count))))
    return ClockCheck(matched=len(spread), end_spread_ns=apart, offsets_ns=offsets, residual_ns=residual)


def clocks_agree(clock: ClockCheck | None, /) -> bool:
    """Whether times of different ranks may be compared, after the offsets."""
    return clock is not None and clock.residual_ns <= SHARED_CLOCK_NS


def _ends(calls: RankCalls, numbers: npt.NDArray[np.intp], /) -> tuple[npt.NDArray[np.intp], Times]:
    together = np.array([label.synchronises for label in calls.labels], dtype=np.bool_)
    rows = np.flatnonzero((numbers >= 0) & together[calls.label]) if len(calls) else np.empty(0, np.intp)
    rows = rows[np.argsort(numbers[rows])]
    return numbers[rows], calls.end_ns[rows]


def _spreads(ends: _Ends, /, *, count: int) -> Times:
    """Last end minus first end of each match that any of these calls is part of."""
    first = np.full(count, np.iinfo(np.int64).max // 2)
    last = np.full(count, np.iinfo(np.int64).min // 2)
    for numbers, times in ends.values():
        first[numbers] = np.minimum(first[numbers], times)
        last[numbers] = np.maximum(last[numbers], times)
    spread: Times = last - first
    return spread[last >= first]


def _offsets(ends: _Ends, /) -> dict[int, int]:
    """Each rank's clock minus the first rank's; 0 where nothing connects them."""
    waiting = sorted(ends)
    offsets = {waiting.pop(0): 0}
    while waiting:
        found = {}
        for rank in waiting:
            for known, offset in offsets.items():
                _, mine, theirs = np.intersect1d(ends[rank][0], ends[known][0], return_indices=True)
                if len(mine):
                    apart = np.median(ends[rank][1][mine] - ends[known][1][theirs])
                    found[rank] = offset + round(float(apart))
                    break
        if not found:
            break
        offsets |= found
        waiting = [rank for rank in waiting if rank not in found]
    return {rank: offsets.get(rank, 0) for rank in ends}
