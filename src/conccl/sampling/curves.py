"""How the error falls as more is chosen, by SeqPoint and by other rules: what the plots show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.sampling.baselines import Baseline, pick
from conccl.sampling.kernels import sample_kernels
from conccl.sampling.logs import IterationLog
from conccl.sampling.seqpoint import project, select_bins

BINS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 64)
SEEDS = range(5)
"""Draws of a rule that draws, of which the median counts."""

MOST_CLUSTERED = 2_000
"""Distinct lengths beyond which k-means takes too long to draw a curve of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Error of one rule by how many it chose."""

    rule: str
    points: tuple[tuple[int, float], ...]
    """(chosen, error in percent), ascending."""


def iteration_curves(run: IterationLog, /, *, statistic: str) -> tuple[Curve, ...]:
    """SeqPoint with more and more bins, and the other rules with as many iterations."""
    distinct = run.distinct()
    values = dict(zip(map(tuple, distinct.length.tolist()), distinct.statistics[statistic], strict=True))
    actual = float(distinct.count @ distinct.statistics[statistic])
    if not actual:
        return ()
    chosen: dict[int, float] = {}
    for bins in BINS:
        points = select_bins(run, statistic=statistic, bins=bins)
        chosen.setdefault(len(points), _off(project(points, values=values), actual))
        if len(points) == len(values):
            break
    curves = [Curve(rule="seqpoint", points=tuple(sorted(chosen.items())))]
    for rule in Baseline:
        if rule is Baseline.KMEANS and len(values) > MOST_CLUSTERED:
            continue
        seeds: Sequence[int] = SEEDS if rule is Baseline.RANDOM else (0,)
        errors = []
        for count in sorted(chosen):
            drawn = [pick(run, baseline=rule, count=count, statistic=statistic, seed=s) for s in seeds]
            errors.append((count, _median(_off(project(p, values=values), actual) for p in drawn)))
        curves.append(Curve(rule=rule.value, points=tuple(errors)))
    return tuple(curves)


def kernel_curves(names: Sequence[str], durations_ns: npt.NDArray[np.int64], /) -> tuple[Curve, ...]:
    """The interval and the error of more and more kernels, and the errors of other rules."""
    count, total = len(names), float(durations_ns.sum())
    if not total:
        return ()
    sizes = sorted({min(count, size) for size in (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500)})
    found: dict[str, list[tuple[int, float]]] = {}
    random = np.random.default_rng(0)
    for size in sizes:
        sample = sample_kernels(names, durations_ns, most=size, error_percent=1e-6)
        mean = {
            "random": [durations_ns[random.choice(count, size, replace=False)].mean() for _ in range(50)],
            "first": [durations_ns[:size].mean()],
            "evenly spaced": [durations_ns[np.arange(size) * count // size].mean()],
        }
        found.setdefault("chosen", []).append((size, sample.error_percent or 0.0))
        found.setdefault("95 % interval", []).append((size, sample.interval_percent))
        for rule, means in mean.items():
            found.setdefault(rule, []).append((size, _median(_off(m * count, total) for m in means)))
        if sample.interval_percent == 0:
            break
    return tuple(Curve(rule=rule, points=tuple(points)) for rule, points in found.items())


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def _off(projected: float, actual: float) -> float:
    return 100 * abs(projected - actual) / abs(actual)
