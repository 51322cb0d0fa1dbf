"""What both flows hand on: how the run was grouped, and what it took to get there."""

from __future__ import annotations

import contextlib
import enum
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from conccl.core.errors import InputError
from conccl.sampling.intervals.counters import Backend
from conccl.sampling.intervals.markers import Marker
from conccl.sampling.intervals.points import Stage
from conccl.sampling.intervals.program import Program
from conccl.sampling.intervals.simpoint import Clustering
from conccl.sampling.intervals.windows import Detail


class Unit(enum.Enum):
    """What the work of an interval is counted in."""

    INSTRUCTIONS = enum.auto()
    NANOSECONDS = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A run of n intervals, grouped, with the chosen ones in detail."""

    clustering: Clustering
    bounds: tuple[Marker | None, ...]
    """[n + 1]"""
    work: NDArray[np.float64]
    """[n] of each interval."""
    unit: Unit
    detail: Detail | None
    backend: Backend | None
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Open:
    resumed: bool = False


@dataclass(slots=True)
class Timer:
    """Notes what each stage takes and tells who waits which one has begun."""

    progress: Callable[[str], None] = lambda _: None
    stages: list[Stage] = field(default_factory=list)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[_Open]:
        """Time a block; set `resumed` where an earlier call had done the work."""
        self.progress(name)
        wall_ns, cpu_ns, state = time.perf_counter_ns(), _cpu_ns(), _Open()
        yield state
        self.stages.append(
            Stage(
                name=name,
                wall_ns=time.perf_counter_ns() - wall_ns,
                cpu_ns=_cpu_ns() - cpu_ns,
                resumed=state.resumed,
            )
        )


def _cpu_ns() -> int:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return round(1e9 * sum(usage.ru_utime + usage.ru_stime for usage in usages))


def require_intervals(count: int, program: Program, /, *, instructions: int | None, interval: int) -> None:
    """Refuse a run that is over before there is something to choose from."""
    if count >= 2:
        return
    ran = "" if instructions is None else f" ({instructions:,} instructions)"
    smaller = max((instructions or interval) // 100, 1_000)
    raise InputError(
        f"{program.executable.name}{ran} is over before the second interval "
        f"of {interval:,} instructions begins. "
        f"Give a longer run, or shorter intervals (--interval {smaller})."
    )


def note_forks(forks: int, program: Program, /) -> tuple[str, ...]:
    """What a reader must know of a program that has children."""
    if not forks:
        return ()
    return (
        f"{program.executable.name} started {forks} child processes; they are not part of the sample. "
        "If they do the work, sample their command.",
    )
