"""What `conccl analyze` returns: every rank of every trace, and what they say together.

Times are integer ns. A figure that has no meaning is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from conccl.advise.advised import Advice, Remedy
from conccl.core.errors import TraceError
from conccl.core.timeline import Ids, Times
from conccl.core.units import format_ns, format_share
from conccl.traces.findings import (
    ClockCheck,
    CollectiveSummary,
    Contention,
    ExposedCommunication,
    OverlapCost,
    OverlapEstimate,
    OverlappedRegion,
    StepSplit,
    Straggler,
    TimeSplit,
    Unclassified,
    WindowOverlap,
)
from conccl.traces.trace import Health


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesUsed:
    """By which rules rows were classified."""

    version: str
    source: str
    """built in, or the user's file."""
    host_copies: str
    """copy or communication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How far the predictions of one family of kernels are to be trusted in this trace."""

    family: str
    """Whose constants they are priced by: gemm, contiguous, strided, a collective's kind, copy ..."""
    measured: int
    """Kernels that are both predicted and measured alone in the trace."""
    factor: float | None
    """What predictions are multiplied by: the median, by time, of measured over predicted; None: too few."""
    error_before: float | None
    """Mean relative error, by time, on those kernels without that; None where there are none."""
    uncertainty: float
    """Relative error to expect of what is predicted: what is left after it, else the cost model's own."""
    used: bool
    """False: too far off, so that these kernels stay unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionsUsed:
    """What stands in for isolated instances that a rank's trace does not have."""

    device: str | None
    """Of the catalogue; None: the trace's device is not known."""
    reason: str
    """Why nothing is predicted; empty where something is."""
    kernels: int
    """Kernels with a predicted isolated time."""
    calibration: tuple[Calibration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A named stretch of a drawing: a step, or an exposed collective."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawing:
    """A bounded window of one rank, ready to be drawn: GPU rows, and the state of every moment.

    All times are ns from the window's start; rows are clipped to it.
    """

    window: str
    """Which window, in words."""
    origin_ns: int
    """The window's start on the trace's own clock."""
    span_ns: int
    names: tuple[str, ...]
    lanes: tuple[str, ...]
    """Streams; rows index them by ``lane_id``."""
    start_ns: Times
    end_ns: Times
    name_id: Ids
    lane_id: Ids
    activity: npt.NDArray[np.int8]
    """`conccl.core.timeline.Activity` of each row."""
    state_start_ns: Times
    state_end_ns: Times
    state: npt.NDArray[np.int8]
    """Index into `conccl.traces.states.STATES`; the states follow each other and fill the window."""
    marks: tuple[Mark, ...]
    left_out: int
    """Rows of the window that are not drawn (the shortest), so that the drawing stays bounded."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankAnalysis:
    """One rank."""

    rank: int
    path: str
    rank_source: str
    """How the rank is known."""
    device_name: str | None
    window: str
    """Which rows and which time the figures are about, in words."""
    split: TimeSplit
    overlap: OverlapEstimate
    steps: tuple[StepSplit, ...]
    windows: tuple[WindowOverlap, ...] = ()
    """Stretches that the user named in which both sides ran, a bounded number."""
    unattributed_ns: int
    """Kernel and copy time whose step is not known."""
    wait_ns: int | None
    """Time in collectives spent waiting for other ranks; None for one rank or where nothing matched."""
    transfer_ns: int | None
    kernels: int
    kernel_ns: int
    """Summed durations of kernels."""
    health: Health
    drawing: Drawing | None
    contention_left_out: int = 0
    """Kernels that met the other side and are not listed: those that lost least."""
    predictions: PredictionsUsed | None = None
    """None: none were asked for, or every kernel that ran under overlap also ran alone."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Analysis:
    """All traces of one run."""

    paths: tuple[str, ...]
    executor: str = "trace"
    device: str | None
    rules: RulesUsed
    step: int | None
    """The one step that was asked for; None: everything."""
    world_size: int | None
    missing_ranks: tuple[int, ...]
    """Ranks of the world without a trace here."""
    ranks: tuple[RankAnalysis, ...]
    clock: ClockCheck | None
    """None where nothing could be matched."""
    collectives: tuple[CollectiveSummary, ...]
    """By summed duration, longest first."""
    stragglers: tuple[Straggler, ...] = ()
    """Ranks that made others wait, by time caused, most first."""
    contention: tuple[Contention, ...]
    """By time lost, most first; those without a known slowdown last."""
    regions: tuple[OverlappedRegion, ...]
    """By cost, most first; a bounded number a rank."""
    exposed: tuple[ExposedCommunication, ...]
    """By exposed time, longest first; a bounded number a rank."""
    left_out: dict[str, int] = field(default_factory=dict)
    """How many more ``regions`` and ``exposed`` the ranks kept than are listed."""
    costs: tuple[OverlapCost, ...] = ()
    """Exposed and contended overlaps in one list, the costliest first."""
    unclassified: tuple[Unclassified, ...]
    remedies: tuple[Remedy, ...] = ()
    """What strategies would bring for the costliest overlaps, simulated; those whose kernels are recorded."""
    advice: tuple[Advice, ...]
    warnings: tuple[str, ...]
    problems: tuple[TraceError, ...] = field(default=())
    """Files that could not be read."""

    def line(self) -> str:
        """One line for a training log: hidden and exposed communication and idle time, mean over ranks."""
        if not self.ranks:
            return "overlap: no rank could be read"
        splits = [rank.split for rank in self.ranks]
        communication = sum(split.communication_ns for split in splits)
        if not communication:
            return "overlap: no communication found"
        hidden = sum(split.both_ns for split in splits) / communication
        exposed = sum(split.communication_only_ns for split in splits) / len(splits)
        idle = sum(split.idle_ns for split in splits) / max(1, sum(split.span_ns for split in splits))
        mean = communication / len(splits)
        return (
            f"overlap: {format_share(hidden)} of {format_ns(mean)} communication hidden,"
            f" {format_ns(exposed)} exposed, {format_share(idle)} idle"
            f" ({len(splits)} rank{'s' if len(splits) > 1 else ''})"
        )
