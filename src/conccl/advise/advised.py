"""What advice is: something to do, what it costs not to, and what simulated strategies would bring."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStrategy:
    """What one strategy would bring for an overlap."""

    name: str
    speedup: float
    """Over one side after the other, simulated."""
    fraction_of_ideal: float | None
    gain_ns: int
    """Time saved on the rank that pays most, at most what the overlap costs it; below 0: lost."""
    uncertainty_ns: int
    """How far off that may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What each strategy would bring for one of the costliest overlaps, simulated on the trace's device."""

    place: int
    """Which of the analysis's ``costs`` it is about, from 0."""
    kind: str
    """contention, exposed (a candidate might cover it), exposed_after (if the kernel before it feeds it)."""
    communication: str
    compute: str
    """Kernels, by the names in the trace."""
    rank: int
    """The rank that pays most."""
    cost_ns: int
    """What the overlap costs that rank."""
    device: str
    pair: str
    """What was simulated: the two ops, as sizes."""
    assumption: str
    """What the trace does not record and was taken to be so; empty where it is all recorded."""
    measured_fraction: float | None
    """Fraction of ideal in the trace; None where nothing overlapped."""
    strategies: tuple[SimulatedStrategy, ...]
    """By gain, most first."""
    best: str | None
    """The strategy to use: the simplest of those that bring most; None: none surely gains."""
    gain_ns: int
    """Of the best; 0 where there is none."""
    uncertainty_ns: int
    """How far off that may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Something to do, with what it costs not to."""

    title: str
    detail: str
    cost_ns: int | None
    source: str = "measured"
    """measured in the trace, or simulated."""
    remedy: Remedy | None = None
