"""Search of a product of settings by few measurements, guided by predictions that they correct.

Every setting has a predicted time. What is measured says how far off predictions are; that error is taken to
be a product of one factor for each value of each axis, estimated by ridge regression on logarithms. The next
setting to measure is the one whose corrected prediction is least, less what is not known about it: values
that nobody has tried yet are given the benefit of the doubt. (Lagom, arXiv:2602.20656, searches the
collective's settings one axis at a time by a cost model's priorities; here one model ranks all axes at once.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.errors import InputError

Array = npt.NDArray[np.float64]

Point = tuple[int, ...]
"""One setting: the place of its value on each axis."""

RIDGE = 0.5
"""Measurements that a factor's being 1 counts as."""

DOUBT = 1.0
"""Standard errors of a corrected prediction that are taken off it."""

LEAST_ERROR = 0.02
"""Relative error that corrected predictions are never better than."""

IMPROVEMENT = 1e-3
"""A measured time that is less than the best by a smaller share is no news."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One setting that was measured."""

    point: Point
    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How far to go."""

    most: int
    """Measurements at most."""
    patience: int = 24
    """Measurements without an improvement after which the search ends."""

    def __post_init__(self) -> None:
        if self.most < 1 or self.patience < 1:
            raise InputError(
                f"a search of {self.most} measurements with patience {self.patience}; both must be 1 or more."
            )

    def run(
        self,
        points: Sequence[Point],
        /,
        *,
        predicted_ns: Callable[[Point], float],
        measured_ns: Callable[[Point], int | None],
    ) -> tuple[Trial, ...]:
        """What was measured, in order; a setting that cannot be (None) costs a measurement too."""
        logs = np.array([math.log(max(predicted_ns(point), 1.0)) for point in points])
        features = _features(points)
        left = np.ones(len(points), dtype=bool)
        rows: list[int] = []
        errors: list[float] = []
        found: list[Trial] = []
        best_ns, since = math.inf, 0
        for _ in range(min(self.most, len(points))):
            scores = logs + _corrections(features, rows, errors)
            index = int(np.argmin(np.where(left, scores, np.inf)))
            left[index] = False
            time_ns = measured_ns(points[index])
            since += 1
            if time_ns is not None:
                found.append(Trial(point=points[index], time_ns=time_ns))
                rows.append(index)
                errors.append(math.log(max(time_ns, 1)) - logs[index])
                if time_ns < best_ns * (1.0 - IMPROVEMENT):
                    best_ns, since = time_ns, 0
            if since >= self.patience:
                break
        return tuple(found)


def _features(points: Sequence[Point]) -> Array:
    """One column for each value of each axis, and a last one for what all have in common."""
    columns = sorted({(axis, value) for point in points for axis, value in enumerate(point)})
    place = {column: index for index, column in enumerate(columns)}
    features = np.zeros((len(points), len(columns) + 1))
    features[:, -1] = 1.0
    for row, point in enumerate(points):
        for axis, value in enumerate(point):
            features[row, place[axis, value]] = 1.0
    return features


def _corrections(features: Array, rows: Sequence[int], errors: Sequence[float]) -> Array:
    """Logarithm of measured over predicted time that every setting may have at best."""
    if not rows:
        return np.zeros(len(features))
    seen = features[list(rows)]
    ridge = np.full(features.shape[1], RIDGE)
    ridge[-1] = 1e-6  # what all have in common changes no ranking
    inverse = np.linalg.inv(seen.T @ seen + np.diag(ridge))
    weights = inverse @ (seen.T @ np.array(errors))
    unexplained = max(LEAST_ERROR, float(np.std(np.array(errors) - seen @ weights)))
    unknown = np.sqrt(np.maximum(0.0, np.einsum("ij,jk,ik->i", features, inverse, features)))
    corrections: Array = features @ weights - DOUBT * unexplained * unknown
    return corrections
