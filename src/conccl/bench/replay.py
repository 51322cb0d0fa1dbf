"""A whole run's time on devices nobody has to own: its chosen iterations through the simulator, weighted.

SeqPoints are what a simulator wants of a training run (Pati et al. 2020, arXiv:2007.10459, section I): a few
iterations that say what thousands would. Every length may be simulated too, to see how far off that is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from conccl.bench.sweep import Variation
from conccl.core.errors import InputError
from conccl.core.hardware import Device
from conccl.sampling.logs import IterationLog
from conccl.sampling.seqpoint import Length, SeqPoint, project

Simulate = Callable[[Length, Device], int]
"""Time in ns of one iteration of a length on a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A device, as it is or with numbers changed, and what the run takes there."""

    variation: Variation
    times_ns: Mapping[Length, int]
    """Of one iteration of every length that was simulated."""
    projected_ns: int
    """The whole run, from the chosen iterations."""
    actual_ns: int | None
    """The whole run, from every length; None where only the chosen ones were simulated."""

    @property
    def name(self) -> str:
        """The device, and what was changed."""
        changed = self.variation.name
        return f"{self.variation.device.name} ({changed})" if changed else self.variation.device.name

    @property
    def error_percent(self) -> float | None:
        """How far the projection is off the whole simulated run, without sign."""
        return None if self.actual_ns is None else _off(self.projected_ns, self.actual_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A run on one or more devices; speedups are over the first."""

    target: str
    seqpoints: tuple[SeqPoint, ...]
    places: tuple[Place, ...]

    def speedup(self, place: Place, /) -> float:
        """Projected time on the first device over that on this one."""
        return self.places[0].projected_ns / place.projected_ns

    def actual_speedup(self, place: Place, /) -> float | None:
        """The same from every length."""
        first = self.places[0].actual_ns
        return None if first is None or not place.actual_ns else first / place.actual_ns

    def speedup_error_percent(self, place: Place, /) -> float | None:
        """How far the projected speedup is off, without sign."""
        actual = self.actual_speedup(place)
        return None if actual is None else _off(self.speedup(place), actual)


def replay(
    seqpoints: Sequence[SeqPoint],
    /,
    *,
    target: str,
    variations: Sequence[Variation],
    simulate: Simulate,
    whole: IterationLog | None = None,
) -> Replay:
    """Simulate the chosen iterations on every device, or, given the ``whole`` run, every length of it."""
    points = tuple(seqpoints)
    if not variations:
        raise InputError("no device to replay on. Give one or more.")
    places = [_place(points, one, simulate=simulate, whole=whole) for one in variations]
    return Replay(target=target, seqpoints=points, places=tuple(places))


def run_time_ns(run: IterationLog, /, *, device: Device, simulate: Simulate) -> dict[Length, int]:
    """Time of one iteration of each length of a run."""
    return {length: simulate(length, device) for length in map(tuple, run.distinct().length.tolist())}


def _place(
    points: tuple[SeqPoint, ...], variation: Variation, *, simulate: Simulate, whole: IterationLog | None
) -> Place:
    device = variation.device
    if whole is None:
        times_ns = {point.length: simulate(point.length, device) for point in points}
        actual_ns = None
    else:
        times_ns = run_time_ns(whole, device=device, simulate=simulate)
        counts = whole.distinct().count.astype(int).tolist()
        actual_ns = sum(count * time_ns for count, time_ns in zip(counts, times_ns.values(), strict=True))
    return Place(
        variation=variation,
        times_ns=times_ns,
        projected_ns=round(project(points, values=times_ns)),
        actual_ns=actual_ns,
    )


def _off(projected: float, actual: float) -> float | None:
    return 100 * abs(projected - actual) / actual if actual else None
