"""One rank of one profiler trace, as the analyses see it: GPU rows, steps, collectives, health.

The GPU rows are a `Timeline` whose ``columns`` hold, one entry a row:

=================  ======  =====================================================================
``step``           int32   index into ``Trace.steps`` of the step that launched it; -1: not known
``correlation``    int64   links a row to its launch on the host; -1: none recorded
``launch_ns``      int64   when the host launched it; -1: not known
``ctas``           int64   CTAs of a kernel's grid; 0: not known or no kernel
``threads``        int32   threads of one CTA; 0: not known or no kernel
``variant``        int32   equal for rows of equal name, grid, block and (where recorded) input shapes
``collective``     int32   index into ``Trace.collectives``; -1: none
``nbytes``         int64   bytes of a copy or memset; 0: not known or neither
``in_graph``       bool    launched as part of a captured graph
``rule``           int16   index into the rules of the classification that matched; -1: no rule knows it
=================  ======  =====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from conccl.core.ops import CollectiveKind, DType
from conccl.core.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One training or serving step, as the profiler's user marked it on the host."""

    number: int
    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCall:
    """What the trace says of one collective's call; None wherever it says nothing."""

    kind: CollectiveKind | None
    group: str | None
    """The process group's name."""
    group_ranks: tuple[int, ...] | None
    group_size: int | None
    sequence: int | None
    """Running number of the call within its group."""
    dtype: DType | None
    in_elements: int | None
    out_elements: int | None

    @property
    def nbytes(self) -> int | None:
        """Bytes as nccl-tests counts them: the larger of input and output of one rank."""
        if self.dtype is None or self.in_elements is None or self.out_elements is None:
            return None
        return max(self.in_elements, self.out_elements) * self.dtype.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What was odd about a trace: counts of rows, and times in ns."""

    rows: int = 0
    """GPU rows that were read."""
    overlapping_rows: int = 0
    """Rows that began before the row before them on the same stream had ended."""
    clipped_ns: int = 0
    """Time cut off those so that each stream is serial."""
    zero_rows: int = 0
    """Rows with no duration."""
    negative_rows: int = 0
    """Rows with a negative duration: dropped."""
    bad_time_rows: int = 0
    """Rows whose times are no finite numbers, or beyond a century: dropped."""
    unlinked_rows: int = 0
    """Rows whose launch is not in the trace, so that their step is not known."""
    graph_rows: int = 0
    """Rows launched by graphs: idle time inside a graph is not known."""
    sync_rows: int = 0
    """Synchronisation rows: never counted as work."""
    truncated: bool = False
    """The file ended early; what came before was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One rank of one trace file."""

    path: str
    rank: int
    rank_source: str
    """How the rank is known: given, distributedInfo, file name, or order of the files."""
    world_size: int | None
    device_name: str | None
    sm_count: int | None
    timeline: Timeline
    steps: tuple[Step, ...]
    collectives: tuple[CollectiveCall, ...]
    health: Health
    warnings: tuple[str, ...] = ()
