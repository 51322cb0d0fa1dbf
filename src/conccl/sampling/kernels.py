"""A few kernels that stand for all of a trace or simulated run.

Kernels are put into strata, first by what they are and then by how long they take, and one kernel of each
stands for it: stratified sampling, as Sieve (Naderan-Tahan et al., ISPASS 2023) and STEM+ROOT do it for GPU
simulation. The stratum that adds most to the uncertainty of the projected time is split until the error
wanted is reached.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.errors import InputError

CONFIDENCE_Z = 1.96
"""Standard errors of a 95 % confidence interval."""


class Grouping(enum.Enum):
    """Whether kernels of different names may stand for each other."""

    FEWEST = "fewest"
    """Where that takes fewer: right for the run that they were chosen from."""
    BY_NAME = "by name"
    """Never, where there is room for all names: what takes as long here need not on another device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPoint:
    """One kernel that stands for its stratum."""

    index: int
    """Its place in the run."""
    name: str
    weight: int
    """Kernels that it stands for."""
    duration_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSample:
    """The chosen kernels, and what they say of the whole."""

    points: tuple[KernelPoint, ...]
    kernels: int
    actual_ns: int
    interval_percent: float
    """Half-width of the 95 % confidence interval of the projection, were the kernels drawn at random."""

    @property
    def projected_ns(self) -> int:
        """Every chosen kernel times the kernels that it stands for."""
        return sum(point.weight * point.duration_ns for point in self.points)

    @property
    def error_percent(self) -> float | None:
        """How far the projection is off, without sign."""
        if not self.actual_ns:
            return None
        return 100 * abs(self.projected_ns - self.actual_ns) / self.actual_ns

    @property
    def reduction(self) -> float:
        """Kernels of the run for each chosen one."""
        return self.kernels / len(self.points)

    def scaled_ns(self, durations_ns: Sequence[int], /) -> int:
        """The whole run from the chosen kernels' durations elsewhere, in the order of ``points``."""
        if len(durations_ns) != len(self.points):
            raise InputError(
                f"{len(durations_ns)} durations for {len(self.points)} chosen kernels. Give one for each."
            )
        return sum(point.weight * duration for point, duration in zip(self.points, durations_ns, strict=True))


def sample_kernels(
    kinds: Sequence[str],
    durations_ns: npt.NDArray[np.int64],
    /,
    *,
    names: Sequence[str] | None = None,
    error_percent: float = 1.0,
    most: int | None = None,
    grouping: Grouping = Grouping.FEWEST,
) -> KernelSample:
    """The fewest kernels whose confidence interval is within the error, or ``most`` of them.

    ``kinds`` tell what each kernel is: those of equal kind (name, with launch and shapes where known) are
    alike. ``names`` are what the chosen are called; None: by their kind.
    """
    durations = np.asarray(durations_ns, dtype=np.float64)
    strata = stratified(kinds, durations_ns, error_percent=error_percent, most=most, grouping=grouping)
    points = _points(kinds if names is None else names, durations, strata)
    variance = sum(_variance(durations, stratum) for stratum in strata)
    total = float(durations.sum())
    return KernelSample(
        points=tuple(sorted(points, key=lambda point: point.index)),
        kernels=len(kinds),
        actual_ns=round(total),
        interval_percent=100 * CONFIDENCE_Z * float(np.sqrt(variance)) / total if total else 0.0,
    )


Stratum = npt.NDArray[np.intp]


def stratified(
    names: Sequence[str],
    durations_ns: npt.NDArray[np.int64],
    /,
    *,
    error_percent: float = 1.0,
    most: int | None = None,
    grouping: Grouping = Grouping.FEWEST,
) -> list[Stratum]:
    """The kernels that each chosen one stands for, by index."""
    if not len(names):
        raise InputError("no kernels to choose from. Give a trace or run with at least one.")
    if not 0 < error_percent < 100:
        raise InputError(f"an error of {error_percent} % was asked for; give one above 0 and below 100.")
    if most is not None and most < 1:
        raise InputError(f"{most} kernels at most were asked for; give 1 or more.")
    durations = np.asarray(durations_ns, dtype=np.float64)
    if (durations < 0).any():
        raise InputError(f"a kernel of {durations.min():g} ns. Durations are never negative.")
    wanted = error_percent / 100 * float(durations.sum())
    return _strata(names, durations, wanted=wanted, most=most or len(names), grouping=grouping)


def _strata(
    names: Sequence[str],
    durations: npt.NDArray[np.float64],
    *,
    wanted: float,
    most: int,
    grouping: Grouping,
) -> list[Stratum]:
    """Begun with a stratum for each name, or with one for all: whichever needs fewer, or has less spread.

    Telling kernels apart by name costs a stratum each, however little time it takes; by duration alone the
    strata go where the time is.
    """
    _, group = np.unique(np.asarray(names, dtype=object).astype(str), return_inverse=True)
    count = int(group.max()) + 1
    found = [_split([np.arange(len(durations))], durations, wanted=wanted, most=most)]
    if count <= (most if grouping is Grouping.BY_NAME else min(most, len(found[0]))):
        by_name = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])
        found.insert(0, _split(by_name, durations, wanted=wanted, most=most))
    if grouping is Grouping.BY_NAME:
        return found[0]
    return min(found, key=lambda strata: (len(strata), sum(_variance(durations, s) for s in strata)))


def _split(
    first: list[Stratum], durations: npt.NDArray[np.float64], *, wanted: float, most: int
) -> list[Stratum]:
    """Strata of which the one that adds most to the spread is halved until the interval is as wanted."""
    heap = [(-_variance(durations, stratum), number, stratum) for number, stratum in enumerate(first)]
    heapq.heapify(heap)
    variance = -sum(item[0] for item in heap)
    number = len(heap)
    while len(heap) < most and CONFIDENCE_Z * np.sqrt(max(0.0, variance)) > wanted:
        worst, _, stratum = heapq.heappop(heap)
        if worst == 0:
            heapq.heappush(heap, (worst, number, stratum))
            break
        variance += worst
        for half in _halves(durations, stratum):
            number += 1
            heapq.heappush(heap, (-_variance(durations, half), number, half))
            variance += _variance(durations, half)
    return [stratum for _, _, stratum in heap]


def _halves(durations: npt.NDArray[np.float64], stratum: Stratum) -> tuple[Stratum, Stratum]:
    """The two parts, shorter and longer, whose variances sum to the least."""
    order = stratum[np.argsort(durations[stratum], kind="stable")]
    values = durations[order] - durations[order].mean()
    sums, squares = np.cumsum(values), np.cumsum(values**2)
    left = np.arange(1, len(values))
    right = len(values) - left
    # (size x standard deviation)^2 of each side, were it cut behind this value
    short = left * squares[:-1] - sums[:-1] ** 2
    long = right * (squares[-1] - squares[:-1]) - (sums[-1] - sums[:-1]) ** 2
    cut = int(np.argmin(short + long)) + 1
    return np.sort(order[:cut]), np.sort(order[cut:])


def _variance(durations: npt.NDArray[np.float64], stratum: Stratum) -> float:
    """Of the stratum's projected time, were its one kernel drawn at random: (size x standard deviation)^2."""
    values = durations[stratum]
    return float((len(values) * values.std()) ** 2) if values.std() > 1e-9 else 0.0


CANDIDATES = 16
"""Kernels of a stratum, those nearest its mean, of which one is chosen."""

TOGETHER = 5
"""Strata, those that can be off most, whose kernels are chosen together, every combination tried."""


def _points(
    names: Sequence[str], durations: npt.NDArray[np.float64], strata: Sequence[Stratum]
) -> list[KernelPoint]:
    """Of each stratum a kernel near its mean, so chosen that what they are off together cancels."""
    nearest = [_nearest(durations, stratum) for stratum in strata]
    off = [
        len(stratum) * (durations[near] - durations[stratum].mean())
        for stratum, near in zip(strata, nearest, strict=True)
    ]
    order = sorted(range(len(strata)), key=lambda place: -float(np.abs(off[place]).max()))
    chosen = [0] * len(strata)
    for place in order[TOGETHER:]:
        rest = sum(float(off[other][chosen[other]]) for other in order[TOGETHER:] if other != place)
        chosen[place] = int(np.argmin(np.abs(rest + off[place])))
    most = order[:TOGETHER]
    sums = np.full((1,) * len(most), sum(float(off[place][chosen[place]]) for place in order[TOGETHER:]))
    for axis, place in enumerate(most):
        sums = sums + off[place].reshape([-1 if axis == other else 1 for other in range(len(most))])
    for place, pick in zip(most, np.unravel_index(int(np.argmin(np.abs(sums))), sums.shape), strict=True):
        chosen[place] = int(pick)
    return [
        KernelPoint(
            index=int(near[pick]),
            name=str(names[near[pick]]),
            weight=len(stratum),
            duration_ns=round(durations[near[pick]]),
        )
        for stratum, near, pick in zip(strata, nearest, chosen, strict=True)
    ]


def _nearest(durations: npt.NDArray[np.float64], stratum: Stratum) -> Stratum:
    """A few kernels of a stratum by distance from its mean; of equal durations the first alone."""
    _, first = np.unique(durations[stratum], return_index=True)
    distinct = stratum[np.sort(first)]
    distance = np.abs(durations[distinct] - durations[stratum].mean())
    return distinct[np.argsort(distance, kind="stable")[:CANDIDATES]]
