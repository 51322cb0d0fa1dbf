"""Each stream runs one row after the other: rows that seem to overrun the next are cut, and counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conccl.core.timeline import Ids, Mask, Times


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SerialRows:
    """Ends of rows after the cuts, and what was cut."""

    end_ns: Times
    overlapping_rows: int
    clipped_ns: int


def make_serial(*, start_ns: Times, end_ns: Times, lane: Ids, in_graph: Mask) -> SerialRows:
    """Cut each row's end to the start of the next row on its lane, unless one of the two is part of a graph.

    Rounding to microseconds makes neighbours overlap by one, ROCm has reported kernels that overrun the next
    by seconds, and dependent launches really start before their predecessor has ended: in each case the later
    start is the fact. Nodes of a graph may run side by side on what the profiler draws as one stream.
    """
    order = np.lexsort((end_ns, start_ns, lane))
    here, after = order[:-1], order[1:]
    overrun = (lane[here] == lane[after]) & (end_ns[here] > start_ns[after])
    cut = overrun & ~in_graph[here] & ~in_graph[after]
    ends = end_ns.copy()
    ends[here[cut]] = start_ns[after[cut]]
    return SerialRows(end_ns=ends, overlapping_rows=int(overrun.sum()), clipped_ns=int((end_ns - ends).sum()))
