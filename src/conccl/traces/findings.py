"""What the analyses of traces return: records with every figure's window and rule beside it.

Times are integer ns. A figure that has no meaning is None. JSON keys (contracts) are these names.
"""

from __future__ import annotations

from dataclasses import dataclass

from conccl.core.metrics import Overlap, fraction_of_ideal

ENOUGH_INSTANCES = 3
ALIKE = 0.5
"""Interquartile range over median below which instances are alike; kernels of unrecorded shapes are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSplit:
    """A window of one rank, split so that the five parts sum to it exactly."""

    span_ns: int
    compute_only_ns: int
    communication_only_ns: int
    both_ns: int
    copy_only_ns: int
    """Copies and memsets under neither compute nor communication."""
    idle_ns: int

    @property
    def communication_ns(self) -> int:
        """Time in which communication ran."""
        return self.communication_only_ns + self.both_ns

    @property
    def hidden_share(self) -> float | None:
        """Communication under compute over all communication; None where there is none."""
        return self.both_ns / self.communication_ns if self.communication_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapEstimate:
    """How far a window was from ideal overlap, from estimated isolated times."""

    overlap: Overlap | None
    """Isolated times against the window's length; None where isolated times are not known."""
    source: str
    """measured (isolated instances in the trace), predicted, or unknown."""
    unknown_ns: int
    """Kernel time beside the other side for which no isolated time is known."""
    predicted_ns: int = 0
    """Time in which both sides ran and some kernel's isolated time is a prediction."""
    compute_uncertainty_ns: int = 0
    """How far off the isolated compute time may be, as far as it rests on predictions."""
    communication_uncertainty_ns: int = 0

    @property
    def fraction_range(self) -> tuple[float, float] | None:
        """The fraction of ideal if every prediction errs by its uncertainty, down and up; None: all measured.

        Both ends have the same time in which the sides ran together.
        """
        if self.overlap is None or not (self.compute_uncertainty_ns or self.communication_uncertainty_ns):
            return None
        ends = []
        for sign in (-1, 1):
            shifted = Overlap(
                compute_ns=max(0, self.overlap.compute_ns + sign * self.compute_uncertainty_ns),
                communication_ns=max(
                    0, self.overlap.communication_ns + sign * self.communication_uncertainty_ns
                ),
                concurrent_ns=self.overlap.concurrent_ns,
            )
            fraction = shifted.fraction_of_ideal
            if fraction is None:
                return None
            ends.append(fraction)
        return min(ends), max(ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOverlap:
    """A stretch that the user named (record_function), all its instances together."""

    name: str
    count: int
    start_ns: int
    """Where its first instance's GPU work begins, from the start of the rank's window."""
    span_ns: int
    """From first start to last end of its GPU work, summed over instances."""
    overlap: OverlapEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSplit:
    """One step of one rank: the work that the step launched, whenever it ran."""

    number: int
    name: str
    start_ns: int
    """First start of its work, from the start of the rank's window."""
    split: TimeSplit
    overlap: OverlapEstimate
    wait_ns: int | None
    """Time in collectives spent waiting for other ranks; None where they could not be matched."""
    transfer_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedCommunication:
    """Communication that ran with no compute beside it, always between the same two kernels."""

    rank: int
    step: int | None
    """The step of the call that was exposed longest."""
    name: str
    calls: int
    exposed_ns: int
    """Over all these calls."""
    wait_ns: int | None
    """At least this much of it is waiting for other ranks, which no overlap removes; None: not known."""
    coverable_ns: int
    """At most this much could be covered: its steps have no more compute that runs without communication."""
    start_ns: int
    """Where its longest exposed stretch begins, from the start of the rank's window."""
    stretch_ns: int
    """How long that is."""
    before: str | None
    """The compute kernel that ended last before it."""
    after: str | None
    """The compute kernel that started first after it."""
    candidate: str | None
    """A kernel nearby that might cover it: by launch and stream order; independence is not proved."""
    candidate_ns: int | None
    evidence: str | None
    """What the trace shows of the candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSummary:
    """All calls of one collective (kind, group, bytes), over ranks."""

    name: str
    kind: str | None
    group: str | None
    ranks: int | None
    nbytes: int | None
    calls: int
    """Kernels on all ranks together."""
    matched: int
    """Calls matched over all the group's ranks that are in the traces."""
    duration_ns: int
    """Mean over ranks of the summed kernel time."""
    transfer_ns: int | None
    """The same counting each matched call with its shortest rank."""
    wait_ns: int | None
    skew_ns: int | None
    """Median over matched calls of last start minus first start."""
    last_rank: int | None
    """The rank that arrived last most often: the straggler."""
    algbw: float | None
    """Bytes/s on the transfer part."""
    busbw: float | None
    ctas: int | None
    """SMs taken at most: CTAs of the kernel's grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockCheck:
    """Whether the ranks share a clock: the ends of a matched collective must agree."""

    matched: int
    """Collectives that the check rests on."""
    end_spread_ns: int
    """Median over them of last end minus first end, on the traces' own clocks."""
    offsets_ns: dict[int, int]
    """What was subtracted from each rank's times; all 0 where the ranks share a clock."""
    residual_ns: int
    """The median spread that is left after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A rank for which others waited."""

    rank: int
    last: int
    """Matched calls at which it arrived last."""
    matched: int
    """Matched calls that it took part in."""
    caused_ns: int
    """What the others waited for it, on average over them, summed over those calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """One kernel variant, alone against under the other side, within one run."""

    rank: int | None
    """None: calls matched over ranks, each counted with its transfer alone."""
    name: str
    side: str
    """compute (slowed by communication) or communication (slowed by compute)."""
    alone_count: int
    alone_ns: int | None
    """Median duration of the instances with nothing of the other side beside them; None without any."""
    alone_spread: float | None
    """Interquartile range over median."""
    overlapped_count: int
    """Instances with any of the other side beside them."""
    overlapped_ns: int
    """Median duration of those."""
    overlapped_spread: float
    overlapped_share: float
    """Share of their time in which the other side ran."""
    slowdown: float | None
    """Time under full overlap over time alone, partial overlap counted by its share; None: unknown."""
    excess_ns: int | None
    """Time lost over all instances; None: unknown."""
    ctas: int | None
    """SMs that the communication takes at most: CTAs of this kernel, or on average of what ran beside it."""
    waits: bool
    """The kernel waits for other ranks, so that its durations differ for more reasons than contention."""
    predicted_ns: int | None = None
    """What an instance takes alone by the cost models, where the trace has none alone; else None."""
    predicted_uncertainty: float | None = None
    """Relative error to expect of that."""

    @property
    def firm(self) -> bool:
        """Whether instances are enough, and alike enough when alone, to act on."""
        enough = min(self.alone_count, self.overlapped_count) >= ENOUGH_INSTANCES
        return enough and self.alone_spread is not None and self.alone_spread <= ALIKE and not self.waits


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlappedRegion:
    """Stretches in which the same kernels of both sides ran together, and how far from ideal they were.

    While both sides have work, ideal is both at full speed: an ideal speedup of 2.
    """

    rank: int
    step: int | None
    """Of the costliest stretch, like the names and the start."""
    start_ns: int
    """From the start of the rank's window."""
    count: int
    """Stretches with the same longest kernel on either side, all together below."""
    concurrent_ns: int
    """Time in which both sides ran."""
    compute: tuple[str, ...]
    communication: tuple[str, ...]
    compute_ns: int | None
    """Isolated compute time that was done in it; None where isolated times are not known."""
    communication_ns: int | None
    source: str
    """measured (isolated instances in the trace), predicted, or unknown."""
    unknown_ns: int
    """Time of it for which some kernel's isolated time is not known."""
    cost_ns: int | None
    """What the side lost in it that is busy longer in the rank's window: the other's loss costs no time."""
    cost_uncertainty_ns: int = 0
    """How far off that may be, as far as it rests on predictions."""
    compute_uncertainty_ns: int = 0
    communication_uncertainty_ns: int = 0

    @property
    def ideal_speedup(self) -> float | None:
        """Both sides at full speed; None where isolated times are not known."""
        return None if self.compute_ns is None or not self.concurrent_ns else 2.0

    @property
    def speedup(self) -> float | None:
        """Work of both sides done, over the time that it took."""
        if self.compute_ns is None or self.communication_ns is None or not self.concurrent_ns:
            return None
        return (self.compute_ns + self.communication_ns) / self.concurrent_ns

    @property
    def fraction_of_ideal(self) -> float | None:
        """0: no faster than one after the other; 1: both at full speed."""
        return fraction_of_ideal(speedup=self.speedup, ideal_speedup=self.ideal_speedup)

    @property
    def compute_lost_ns(self) -> int | None:
        """Compute that contention kept from being done in it."""
        return None if self.compute_ns is None else self.concurrent_ns - self.compute_ns

    @property
    def communication_lost_ns(self) -> int | None:
        """Communication that contention kept from being done in it."""
        return None if self.communication_ns is None else self.concurrent_ns - self.communication_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapCost:
    """What one communication costs beside one computation, the mean over ranks: exposed, or in contention."""

    kind: str
    """exposed (no compute beside it), or contention (what overlap slowed the side that is busy longer by)."""
    cost_ns: int
    """Mean over all ranks; of exposed time what could be covered and is not known to be waiting."""
    ranks: int
    """Ranks that have it."""
    communication: str
    compute: str | None
    """The kernel beside it; where it is exposed, the one before it."""
    worst: ExposedCommunication | OverlappedRegion
    """The rank that pays most."""
    source: str = "measured"
    """measured, or predicted where isolated times in it are."""
    uncertainty_ns: int = 0
    """How far off the cost may be, as far as it rests on predictions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclassified:
    """A kernel that no rule knows; counted as compute."""

    name: str
    count: int
    duration_ns: int
    share: float
    """Of all kernel time."""
