"""Links GPU rows to what the host did: each row's launch, and the label or operator around the launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Ids, Mask, Times
from conccl.traces.columns import Columns
from conccl.traces.host_rows import HostRows

_MOST_SIBLINGS = 64
"""How many earlier stretches of a thread are tried for one that encloses a launch."""

_LATE_NS = 10**12
"""Before this much of a clock's time a launch and its row a thousandfold later need not be one moment."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Links:
    """For each GPU row its launch."""

    launch_ns: Times
    """-1: not in the trace."""
    thread: Ids
    """Of the launch; means nothing where there is none."""
    from_graph: Mask

    @property
    def known(self) -> Mask:
        """Rows whose launch is in the trace."""
        return self.launch_ns >= 0

    def thousandfold(self, start_ns: Times, /) -> Mask:
        """Rows that start a thousand times as late as they were launched: given in ns among us."""
        launched = np.where(self.launch_ns > _LATE_NS, self.launch_ns, 0)
        return (launched > 0) & (start_ns // 1000 > launched // 10 * 9) & (start_ns // 1100 < launched)


def link(correlation: Times, host: HostRows, /) -> Links:
    """The launch of each row by its correlation; of several calls with one correlation the first."""
    numbers = host.launches.array("correlation", dtype=np.int64)
    times = host.launches.array("time_ns", dtype=np.int64)
    usable = np.flatnonzero(
        host.launches.array("good", dtype=np.bool_) & (numbers > 0) & np.isin(numbers, correlation)
    )
    order = usable[np.lexsort((times[usable], numbers[usable]))]
    if not len(order):
        nothing = np.zeros(len(correlation), dtype=np.bool_)
        return Links(
            launch_ns=np.full(len(correlation), -1, dtype=np.int64),
            thread=np.zeros(len(correlation), dtype=np.int32),
            from_graph=nothing,
        )
    place = np.searchsorted(numbers[order], correlation).clip(max=len(order) - 1)
    launch = order[place]
    found = numbers[launch] == correlation
    return Links(
        launch_ns=np.where(found, times[launch], -1),
        thread=host.thread_numbers(host.launches)[launch],
        from_graph=found & host.launches.array("is_graph", dtype=np.bool_)[launch],
    )


def around(links: Links, stretches: Columns, mask: Mask, /, *, threads: Ids) -> Ids:
    """For each row the innermost of the masked stretches of host time that encloses its launch; -1: none.

    ``threads`` is the thread of each stretch.
    Stretches of one thread nest, so the innermost is the last to start among those that have not ended.
    """
    result = np.full(len(links.launch_ns), -1, dtype=np.int32)
    usable = np.flatnonzero(mask & stretches.array("good", dtype=np.bool_))
    if not len(usable):
        return result
    thread = threads[usable]
    start = stretches.array("start_ns", dtype=np.int64)[usable]
    end = start + stretches.array("duration_ns", dtype=np.int64)[usable]
    order = np.lexsort((start, thread))
    for number in np.unique(thread):
        rows = np.flatnonzero(links.known & (links.thread == number))
        nested = order[thread[order] == number]
        result[rows] = _innermost(links.launch_ns[rows], start[nested], end[nested], usable[nested])
    return result


def _innermost(
    moments: Times, start: Times, end: Times, numbers: npt.NDArray[np.intp]
) -> npt.NDArray[np.intp]:
    """The number of the innermost stretch around each moment; stretches are sorted by start."""
    result = np.full(len(moments), -1, dtype=np.intp)
    left = np.arange(len(moments))
    place = np.searchsorted(start, moments, side="right") - 1
    for _ in range(_MOST_SIBLINGS):
        going_on = place >= 0
        left, place = left[going_on], place[going_on]
        if not len(left):
            break
        encloses = end[place] >= moments[left]
        result[left[encloses]] = numbers[place[encloses]]
        left, place = left[~encloses], place[~encloses] - 1
    return result
