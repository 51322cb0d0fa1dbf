"""One GPU of one profiler trace, as the analyses see it: GPU rows, steps, collectives, annotations, health.

The GPU rows are a `Timeline` whose ``columns`` hold, one entry a row:

=================  ======  =====================================================================
``step``           int32   index into ``Trace.steps`` of the step that launched it; -1: not known
``correlation``    int64   links a row to its launch on the host; -1: none recorded
``launch_ns``      int64   when the host launched it; -1: not known
``ctas``           int64   CTAs of a kernel's grid; 0: not known or no kernel
``threads``        int32   threads of one CTA; 0: not known or no kernel
``variant``        int32   equal for rows of equal name, grid, block and (where recorded) input shapes
``collective``     int32   index into ``Trace.collectives``; -1: none. Every communication row whose kind
                           or metadata is known has one; rows that say the same share it
``operator``       int32   index into ``Trace.operators``: the innermost recorded operator that launched
                           it, if its inputs are kept; -1: none
``nbytes``         int64   bytes of a copy or memset; 0: not known or neither
``in_graph``       bool    launched as part of a captured graph
``rule``           int16   index into ``Trace.rules``; -1: no rule knows it (it counts as compute)
=================  ======  =====================================================================

Each stream of a trace is serial outside graphs: rows that overrun the next one are cut (see `Health`). Rows
inside graphs may run side by side on what the profiler calls one stream and are left as they are.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.kinds import CollectiveKind, DType
from conccl.core.timeline import Ids, Timeline, Times
from conccl.traces.operators import HostOperator


class RankSource(enum.StrEnum):
    """How the rank of a trace is known."""

    GIVEN = "given"
    DISTRIBUTED_INFO = "distributedInfo"
    FILE_NAME = "file name"
    ORDER = "order of the files"


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Annotations:
    """Labels that people put on stretches of time (record_function, nccl:..., ProfilerStep#...), by start.

    Parallel arrays, one entry a label; ``names`` is the table that ``name_id`` indexes.
    """

    names: tuple[str, ...]
    name_id: Ids
    start_ns: Times
    end_ns: Times
    on_gpu: npt.NDArray[np.bool_]
    """True: the window of the GPU work launched under the label; False: its window on the host."""

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What was odd about a trace: counts of rows, and times in ns."""

    rows: int = 0
    """GPU rows that were read."""
    overlapping_rows: int = 0
    """Rows that had not ended when the next one on the same stream began."""
    clipped_ns: int = 0
    """Time cut off their ends, so that each stream is serial; rows of graphs are left as they are."""
    zero_rows: int = 0
    """Rows with no duration."""
    negative_rows: int = 0
    """Rows with a negative duration: dropped."""
    bad_time_rows: int = 0
    """Rows whose times are no finite numbers, or beyond a century: dropped."""
    longest_ns: int = 0
    """The longest row's duration."""
    unlinked_rows: int = 0
    """Rows whose launch is not in the trace, so that their step is not known."""
    graph_rows: int = 0
    """Rows launched by graphs: idle time inside a graph is not known."""
    sync_rows: int = 0
    """Synchronisation rows: never counted as work."""
    nanosecond_rows: int = 0
    """Rows whose times the file gives in nanoseconds instead of microseconds: converted."""
    odd_events: int = 0
    """Events that are no JSON objects: left out."""
    truncated: bool = False
    """The file ended early; what came before was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One GPU of one trace file; GPUs of one process are separate traces."""

    path: str
    """The file, and for a member of an archive the member after "::"."""
    rank: int
    rank_source: RankSource
    world_size: int | None
    device: str
    """The GPU's index as the profiler numbers it."""
    device_name: str | None
    sm_count: int | None
    timeline: Timeline
    steps: tuple[Step, ...]
    collectives: tuple[CollectiveCall, ...]
    annotations: Annotations
    rules: tuple[str, ...]
    """Names of the classification's rules, which the column ``rule`` indexes."""
    health: Health
    operators: tuple[HostOperator, ...] = ()
    warnings: tuple[str, ...] = ()
