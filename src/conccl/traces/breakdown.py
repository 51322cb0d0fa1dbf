"""Where the time of a rank and of each of its steps goes, in integers that sum exactly to the span.

Rules. A kernel of class FUSED counts as compute and as communication. Copies and memsets count only where
neither compute nor communication runs. A rank's window reaches from its first GPU row's start to its last
one's end. A step's rows are those that the step launched (correlation), whenever they ran; its window
reaches from the first start to the last end of those; work of another step beside them hides them as any
work does, and moments at which none of them runs are idle time of the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Activity, Mask, Timeline, Times
from conccl.traces.findings import TimeSplit
from conccl.traces.intervals import Intervals, partition, union


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sides:
    """When each kind of work runs: the sets that every figure is made of."""

    compute: Intervals
    """Compute and fused kernels."""
    communication: Intervals
    """Communication and fused kernels, peer copies, host copies where asked for."""
    copies: Intervals

    @property
    def both(self) -> Intervals:
        """Compute and communication together."""
        return self.compute & self.communication

    @property
    def busy(self) -> Intervals:
        """Compute or communication: what speedups are counted on."""
        return self.compute | self.communication

    def within(self, start_ns: int, end_ns: int, /) -> Sides:
        """What of them lies in [start, end)."""
        return Sides(
            compute=self.compute.within(start_ns, end_ns),
            communication=self.communication.within(start_ns, end_ns),
            copies=self.copies.within(start_ns, end_ns),
        )


Activities = npt.NDArray[np.int8]


def computes(activity: Activities, /) -> Mask:
    """Rows of the compute side."""
    found: Mask = (activity == Activity.COMPUTE) | (activity == Activity.FUSED)
    return found


def communicates(activity: Activities, /) -> Mask:
    """Rows of the communication side."""
    found: Mask = (activity == Activity.COMMUNICATION) | (activity == Activity.FUSED)
    return found


def sides(*, start_ns: Times, end_ns: Times, activity: Activities) -> Sides:
    """When each kind of work runs, from the rows of one rank."""
    compute, communication, copy = computes(activity), communicates(activity), activity == Activity.COPY
    return Sides(
        compute=union(start_ns[compute], end_ns[compute]),
        communication=union(start_ns[communication], end_ns[communication]),
        copies=union(start_ns[copy], end_ns[copy]),
    )


def sides_of(timeline: Timeline, /) -> Sides:
    """When each kind of work runs in a timeline of one rank."""
    return sides(start_ns=timeline.start_ns, end_ns=timeline.end_ns, activity=timeline.activity)


def split(timeline: Timeline, /) -> TimeSplit:
    """A whole timeline of one rank, split."""
    return split_own(sides_of(timeline), span_ns=timeline.span_ns)


def split_own(own: Sides, /, *, others: Sides | None = None, span_ns: int) -> TimeSplit:
    """A window of ``span_ns`` whose own work is hidden by all work: ``others``; None: the own is all."""
    hiding = () if others is None else (others.compute, others.communication)
    edges, held = partition(own.compute, own.communication, own.copies, *hiding)
    compute, communication, copies = held[:3]
    any_compute, any_communication = held[3:] or (compute, communication)
    length = np.diff(edges)

    def total(where: Mask) -> int:
        return int(length[where].sum())

    busy = compute | communication
    copy_only_ns = total(copies & ~busy)
    return TimeSplit(
        span_ns=span_ns,
        compute_only_ns=total(compute & ~any_communication),
        communication_only_ns=total(communication & ~any_compute),
        both_ns=total((compute & any_communication) | (communication & any_compute)),
        copy_only_ns=copy_only_ns,
        idle_ns=span_ns - total(busy) - copy_only_ns,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepWindow:
    """One step's own rows, in time."""

    step: int
    """Index into the trace's steps."""
    start_ns: int
    end_ns: int
    split: TimeSplit


def step_windows(timeline: Timeline, /, *, every: Sides) -> tuple[StepWindow, ...]:
    """The split of each step that launched anything, in the order of the steps."""
    step_of = timeline.columns["step"]
    order = np.argsort(step_of, kind="stable")
    numbers, first = np.unique(step_of[order], return_index=True)
    windows = []
    for number, rows in zip(numbers, np.split(order, first[1:]), strict=True):
        if number >= 0:
            start, end = timeline.start_ns[rows], timeline.end_ns[rows]
            own = sides(start_ns=start, end_ns=end, activity=timeline.activity[rows])
            windows.append(_step_window(own, step=int(number), start=start, end=end, every=every))
    return tuple(windows)


def _step_window(own: Sides, /, *, step: int, start: Times, end: Times, every: Sides) -> StepWindow:
    first, last = int(start.min()), int(end.max())
    return StepWindow(
        step=step,
        start_ns=first,
        end_ns=last,
        split=split_own(own, others=every.within(first, last), span_ns=last - first),
    )
