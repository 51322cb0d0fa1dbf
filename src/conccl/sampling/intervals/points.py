"""Simulation points as records: what was chosen, what it stands for, what it took."""

from __future__ import annotations

from dataclasses import dataclass

from conccl.sampling.intervals.counters import Backend
from conccl.sampling.intervals.markers import Marker
from conccl.sampling.intervals.methods import Method, Translator


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A step of the work and what it took."""

    name: str
    wall_ns: int
    cpu_ns: int
    """Of this process and its children."""
    resumed: bool = False
    """An earlier, interrupted call had done it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One interval that stands for its group."""

    interval: int
    """Its number in the run, from 0."""
    cluster: int
    weight: float
    """Share of the run's instructions that it stands for (of its time, where they are not known)."""
    start: Marker | None
    """Where it begins; None at the start of the program, or where the translator knows no markers."""
    end: Marker | None
    first_instruction: int | None
    """Instructions of the run before it; estimated where nobody counted them, None where nothing tells."""
    instructions: int | None
    """Its own; None where it was not run in detail."""
    counters: dict[str, int] | None
    """Of the cycle model, in this interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The simulation points of a run, and the run that they project."""

    argv: tuple[str, ...]
    """Empty where vectors were given instead of a program."""
    method: Method
    translator: Translator | None
    interval_instructions: int
    """Asked for; of native intervals on the clock, what the time was taken for."""
    backend: Backend | None
    """What cut a native run; None where a translator did."""
    points: tuple[Point, ...]
    bounds: tuple[Marker | None, ...]
    """Where intervals begin, and the end; None at both ends of the run, or where no markers are known."""
    phases: tuple[int, ...]
    """Group of each interval, in the order of the run."""
    shares: tuple[float, ...]
    """Of each interval in the run's instructions (of its time, where they are not known)."""
    scores: dict[int, float]
    """Number of groups tried -> Bayesian information criterion."""
    projected: dict[str, float] | None
    """Counters of the whole run as the points project them; None without detail."""
    stages: tuple[Stage, ...]
    nbytes: int
    """Kept in the output folder, or what would be."""
    warnings: tuple[str, ...]
