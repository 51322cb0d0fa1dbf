"""From grouped intervals to points: what each stands for, and the run that they project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from conccl.sampling.intervals.parts import Parts, Unit
from conccl.sampling.intervals.points import Point
from conccl.sampling.intervals.windows import COUNTERS

GROWN = 0.1
"""How much an interval's instructions may differ between two runs before it is said."""

_INSTRUCTIONS = COUNTERS.index("instructions")


def instructions_of(parts: Parts, /) -> NDArray[np.float64] | None:
    """[n] instructions of each interval; None where only time is known.

    Where intervals were cut by time and the chosen ones counted, others of a group ran as many in a
    nanosecond.
    """
    if parts.unit is Unit.INSTRUCTIONS:
        return parts.work
    counted = _counters(parts)
    if counted is None:
        return None
    rate = counted[:, _INSTRUCTIONS] / parts.work[parts.clustering.representatives]
    found: NDArray[np.float64] = parts.work * rate[parts.clustering.labels]
    return found


def shares_of(parts: Parts, /) -> NDArray[np.float64]:
    """[n] of each interval in the run's instructions; in its time, where nothing more is known."""
    work = instructions_of(parts)
    work = parts.work if work is None else work
    shares: NDArray[np.float64] = work / work.sum()
    return shares


def points_of(parts: Parts, /) -> tuple[Point, ...]:
    """The chosen intervals in the order of the run; the weight of each is the share of its group."""
    clustering, instructions = parts.clustering, instructions_of(parts)
    weights = np.bincount(clustering.labels, weights=shares_of(parts))
    begins = None if instructions is None else np.concatenate([[0.0], np.cumsum(instructions)])
    counters = _counters(parts)
    points = []
    for group in np.argsort(clustering.representatives):
        interval = int(clustering.representatives[group])
        counted = None if counters is None else dict(zip(COUNTERS, counters[group].tolist(), strict=True))
        points.append(
            Point(
                interval=interval,
                cluster=int(group),
                weight=float(weights[group]),
                start=parts.bounds[interval],
                end=parts.bounds[interval + 1],
                first_instruction=None if begins is None else round(begins[interval]),
                instructions=counted["instructions"] if counted else None,
                counters=counted,
            )
        )
    return tuple(points)


def projected(parts: Parts, /) -> dict[str, float] | None:
    """Counters of the run: each point's, times the work of its group over its own; None without detail.

    Its own are the instructions that were counted in detail, where work is instructions: they need not be as
    many as when the run was profiled. A group whose point held none is taken to be like the others.
    """
    counters = _counters(parts)
    if counters is None:
        return None
    clustering = parts.clustering
    counted = counters[:, _INSTRUCTIONS]
    own = counted if parts.unit is Unit.INSTRUCTIONS else parts.work[clustering.representatives]
    work = np.bincount(clustering.labels, weights=parts.work)
    seen = counted > 0
    if not seen.any():
        return None
    times = work[seen] / own[seen] * (work.sum() / work[seen].sum())
    return dict(zip(COUNTERS, (times @ counters[seen]).tolist(), strict=True))


def grown_points(parts: Parts, /) -> tuple[int, ...]:
    """Chosen intervals that held other instructions in detail than when the run was profiled."""
    counters = _counters(parts)
    if counters is None or parts.unit is not Unit.INSTRUCTIONS:
        return ()
    chosen = parts.clustering.representatives
    off = np.abs(counters[:, _INSTRUCTIONS] / parts.work[chosen] - 1) > GROWN
    return tuple(sorted(int(interval) for interval in chosen[off]))


def fixed_numbers(points: Sequence[Point], /, *, interval: int) -> Mapping[int, float]:
    """Number of the interval of equal instructions that a point begins in -> weight; empty where unknown.

    Simulators that read `.simpoints` count such intervals from the start of the program.
    """
    weights: dict[int, float] = {}
    for point in points:
        if point.first_instruction is None:
            return {}
        number = point.first_instruction // interval
        weights[number] = weights.get(number, 0.0) + point.weight
    return weights


def _counters(parts: Parts) -> NDArray[np.int64] | None:
    """[groups, counters] of each chosen interval."""
    if parts.detail is None:
        return None
    chosen = parts.clustering.representatives
    return np.array([parts.detail.interval(int(interval)) for interval in chosen])
