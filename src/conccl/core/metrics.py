"""The formulas of concurrent computation and communication (C3), each in one place.

The definitions are those of ConCCL (arXiv:2412.14335). Percent of ideal is taken on the excess over serial
execution, since only then can the published 21 % of ideal stand beside a speedup of 1.13.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from conccl.core.kinds import CollectiveKind

LONGER_BY = 1.15
"""A side is the long one where it lasts this much longer than the other (ConCCL's taxonomy)."""

MEANINGFUL_IDEAL_SPEEDUP = 1.05
"""Below this there is so little to gain that a fraction of it says nothing."""


class PairClass(enum.StrEnum):
    """Which side of a pair is the long one."""

    G_LONG = "G-long"
    C_LONG = "C-long"
    GC_EQUAL = "GC-equal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A compute and a communication side, isolated and concurrent, and what follows from it."""

    compute_ns: int
    """Isolated time of the compute side."""
    communication_ns: int
    """Isolated time of the communication side."""
    concurrent_ns: int
    """From the start of the first to the end of the last when both run together."""

    @property
    def serial_ns(self) -> int:
        """One after the other."""
        return self.compute_ns + self.communication_ns

    @property
    def ideal_ns(self) -> int:
        """The longer side: the shorter one costs nothing."""
        return max(self.compute_ns, self.communication_ns)

    @property
    def ideal_speedup(self) -> float | None:
        """Serial over ideal, from 1 to 2; None where both sides are empty."""
        return self.serial_ns / self.ideal_ns if self.ideal_ns > 0 else None

    @property
    def speedup(self) -> float | None:
        """Serial over concurrent; None where nothing was measured."""
        return self.serial_ns / self.concurrent_ns if self.concurrent_ns > 0 else None

    @property
    def fraction_of_ideal(self) -> float | None:
        """0 is serial, 1 ideal, below 0 worse than serial; None where it has no meaning."""
        return fraction_of_ideal(speedup=self.speedup, ideal_speedup=self.ideal_speedup)

    @property
    def pair_class(self) -> PairClass:
        """Which side is the long one."""
        if self.compute_ns > LONGER_BY * self.communication_ns:
            return PairClass.G_LONG
        if self.communication_ns > LONGER_BY * self.compute_ns:
            return PairClass.C_LONG
        return PairClass.GC_EQUAL


def fraction_of_ideal(*, speedup: float | None, ideal_speedup: float | None) -> float | None:
    """(speedup - 1) / (ideal speedup - 1), or None where the ideal leaves next to nothing to gain."""
    if speedup is None or ideal_speedup is None or ideal_speedup < MEANINGFUL_IDEAL_SPEEDUP:
        return None
    return (speedup - 1) / (ideal_speedup - 1)


def algbw(*, nbytes: int, time_ns: float) -> float | None:
    """Algorithm bandwidth in bytes/s: nbytes (as `bus_factor` counts them) over time."""
    return nbytes * 1e9 / time_ns if time_ns > 0 else None


def bus_factor(*, kind: CollectiveKind, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests' PERFORMANCE.md derives it.

    The bytes are: for all_reduce, broadcast, reduce, send and recv those of one rank; for all_gather the
    output of one rank, for reduce_scatter its input, for all_to_all what one rank holds, for gather and
    scatter what the root holds.
    """
    if ranks <= 1:
        return 1.0
    share = (ranks - 1) / ranks
    return {
        CollectiveKind.ALL_REDUCE: 2 * share,
        CollectiveKind.ALL_GATHER: share,
        CollectiveKind.REDUCE_SCATTER: share,
        CollectiveKind.ALL_TO_ALL: share,
        CollectiveKind.GATHER: share,
        CollectiveKind.SCATTER: share,
    }.get(kind, 1.0)


def busbw(*, kind: CollectiveKind, nbytes: int, ranks: int, time_ns: float) -> float | None:
    """Bus bandwidth in bytes/s: what a link carries, comparable with its data sheet."""
    bandwidth = algbw(nbytes=nbytes, time_ns=time_ns)
    return None if bandwidth is None else bandwidth * bus_factor(kind=kind, ranks=ranks)
