"""What characterisation finds: pairs, what each strategy brought, and averages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median

from conccl.core.measurement import Environment, Measurement, Status
from conccl.core.metrics import Overlap, PairClass
from conccl.core.pair import Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyResult:
    """One pair by one strategy."""

    overlap: Overlap | None
    """None where it was not measured."""
    measurement: Measurement
    chosen: str = ""
    """What a policy chose; empty where the strategy is its own name."""
    communication_ns: int | None = None
    """The communication by the strategy's own means, alone, where those are faster than the library's:
    then the fraction of ideal, which counts against the library, can exceed 1."""

    @property
    def counts(self) -> bool:
        """Whether it enters averages: measured, and where there is something to prove, proved."""
        return self.overlap is not None and self.measurement.proved is not False


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResult:
    """One pair alone and by all strategies."""

    pair: Pair
    compute: Measurement
    communication: Measurement
    strategies: Mapping[str, StrategyResult]

    @property
    def alone(self) -> Overlap | None:
        """The isolated times, as if run serially; None where one of them is missing."""
        compute_ns, communication_ns = self.compute.median_ns, self.communication.median_ns
        if compute_ns is None or communication_ns is None:
            return None
        return Overlap(
            compute_ns=compute_ns,
            communication_ns=communication_ns,
            concurrent_ns=compute_ns + communication_ns,
        )

    @property
    def pair_class(self) -> PairClass | None:
        """Which side is the long one."""
        return None if self.alone is None else self.alone.pair_class

    @property
    def reason(self) -> str:
        """Why a side has no isolated time; empty where both have."""
        return next((one.reason for one in (self.compute, self.communication) if one.reason), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A pair that was not characterised."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Characterization:
    """Pairs by strategies on one device."""

    environment: Environment
    pairs: tuple[PairResult, ...]
    skipped: tuple[Skipped, ...] = ()

    @property
    def strategies(self) -> tuple[str, ...]:
        """Names of the strategies, in order."""
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair.strategies))

    def fractions(self, strategy: str, /, *, of: PairClass | None = None) -> tuple[float, ...]:
        """Fractions of ideal of a strategy where they have a meaning, of all pairs or of one class."""
        found = []
        for pair in self.pairs:
            result = pair.strategies.get(strategy)
            if result is None or not result.counts or (of is not None and pair.pair_class is not of):
                continue
            fraction = result.overlap.fraction_of_ideal if result.overlap else None
            if fraction is not None:
                found.append(fraction)
        return tuple(found)

    def average_fraction(self, strategy: str, /, *, of: PairClass | None = None) -> float | None:
        """Mean fraction of ideal; None where no pair has one."""
        fractions = self.fractions(strategy, of=of)
        return fmean(fractions) if fractions else None

    def median_speedup(self, strategy: str, /, *, of: PairClass | None = None) -> float | None:
        """The middle speedup over serial, of all pairs or of one class; None where none was measured."""
        speedups = [
            result.overlap.speedup
            for pair in self.pairs
            if (result := pair.strategies.get(strategy)) is not None
            and (of is None or pair.pair_class is of)
            and result.counts
            and result.overlap is not None
            and result.overlap.speedup is not None
        ]
        return median(speedups) if speedups else None

    def failures(self) -> tuple[Measurement, ...]:
        """Cells that could not be measured, other than those a strategy has no meaning for."""
        return tuple(
            result.measurement
            for pair in self.pairs
            for result in pair.strategies.values()
            if result.measurement.status not in (Status.OK, Status.UNSUPPORTED)
        )
