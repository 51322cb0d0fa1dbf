"""Sets of moments: union, intersection and difference of integer-ns intervals, and what they cover of rows.

All intervals are half-open, [start, end). Everything is numpy over whole columns; ten thousand rows take
about a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Mask, Times


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Intervals:
    """A set of moments as sorted intervals that neither overlap nor touch nor are empty."""

    start_ns: Times
    end_ns: Times

    @property
    def total_ns(self) -> int:
        """How long they are together."""
        return int((self.end_ns - self.start_ns).sum())

    def __len__(self) -> int:
        return len(self.start_ns)

    def __or__(self, other: Intervals) -> Intervals:
        return union(
            np.concatenate((self.start_ns, other.start_ns)), np.concatenate((self.end_ns, other.end_ns))
        )

    def __and__(self, other: Intervals) -> Intervals:
        edges, (mine, theirs) = partition(self, other)
        return _merged(edges, mine & theirs)

    def __sub__(self, other: Intervals) -> Intervals:
        edges, (mine, theirs) = partition(self, other)
        return _merged(edges, mine & ~theirs)

    def within(self, start_ns: int, end_ns: int, /) -> Intervals:
        """What of them lies in [start, end)."""
        first = int(np.searchsorted(self.end_ns, start_ns, side="right"))
        last = max(first, int(np.searchsorted(self.start_ns, end_ns, side="left")))
        return Intervals(
            start_ns=np.maximum(self.start_ns[first:last], start_ns),
            end_ns=np.minimum(self.end_ns[first:last], end_ns),
        )

    def holds(self, moments_ns: Times, /) -> Mask:
        """Which moments they hold."""
        if not len(self.start_ns):
            return np.zeros(len(moments_ns), dtype=np.bool_)
        begun = np.searchsorted(self.start_ns, moments_ns, side="right")
        ended = np.searchsorted(self.end_ns, moments_ns, side="right")
        return begun > ended

    def before(self, moments_ns: Times, /) -> Times:
        """How much of them lies before each moment."""
        lengths = self.end_ns - self.start_ns
        summed = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
        begun = np.searchsorted(self.start_ns, moments_ns, side="right")
        whole = summed[begun]
        # The last interval that began may go on beyond the moment.
        beyond = np.zeros(len(moments_ns), dtype=np.int64)
        any_begun = begun > 0
        beyond[any_begun] = np.maximum(self.end_ns[begun[any_begun] - 1] - moments_ns[any_begun], 0)
        return whole - beyond

    def coverage(self, start_ns: Times, end_ns: Times, /) -> Times:
        """How much of each row [start, end) they cover."""
        return self.before(end_ns) - self.before(start_ns)


NOTHING = Intervals(start_ns=np.empty(0, dtype=np.int64), end_ns=np.empty(0, dtype=np.int64))


def union(start_ns: Times, end_ns: Times, /) -> Intervals:
    """The moments that any of these intervals (in any order, empty ones too) holds."""
    real = end_ns > start_ns
    start_ns, end_ns = start_ns[real], end_ns[real]
    if not len(start_ns):
        return NOTHING
    order = np.argsort(start_ns, kind="stable")
    start_ns = start_ns[order]
    reached = np.maximum.accumulate(end_ns[order])
    opens = np.concatenate((np.ones(1, dtype=np.bool_), start_ns[1:] > reached[:-1]))
    closes = np.concatenate((opens[1:], np.ones(1, dtype=np.bool_)))
    return Intervals(start_ns=start_ns[opens], end_ns=reached[closes])


def partition(*sets: Intervals) -> tuple[Times, tuple[Mask, ...]]:
    """All edges of the sets, and for each set which stretches between neighbouring edges it holds."""
    edges = distinct(*(edge for each in sets for edge in (each.start_ns, each.end_ns)))
    return edges, tuple(_held(edges, each) for each in sets)


def _held(edges: Times, intervals: Intervals) -> Mask:
    """Which stretches between these edges, its own among them, the set holds."""
    change = np.zeros(len(edges), dtype=np.int8)
    change[np.searchsorted(edges, intervals.start_ns)] = 1
    change[np.searchsorted(edges, intervals.end_ns)] = -1
    held: Mask = np.cumsum(change[:-1], dtype=np.int8).view(np.bool_)
    return held


def distinct(*times_ns: Times) -> Times:
    """All these times, each once, sorted."""
    # A stable sort merges the sorted runs that edges mostly are; np.unique hashes, ten times slower.
    times = np.sort(np.concatenate(times_ns), kind="stable")
    return times[np.append(True, times[1:] != times[:-1])] if len(times) else times


def _merged(edges: Times, chosen: npt.NDArray[np.bool_]) -> Intervals:
    """The chosen stretches between edges, neighbours joined."""
    if not len(chosen):
        return NOTHING
    change = np.diff(np.concatenate(([False], chosen, [False])).astype(np.int8))
    return Intervals(start_ns=edges[change == 1], end_ns=edges[change == -1])
