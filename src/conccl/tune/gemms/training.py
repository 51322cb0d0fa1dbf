"""Logistic regression on what tuning found: which class was best, weighted by what a wrong one costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conccl.core.errors import InputError
from conccl.tune.gemms.choice import DEGREES, GemmSet
from conccl.tune.gemms.logic import GROUPED, Logic, features
from conccl.tune.gemms.search import Tuned

ROUNDS = 2000
"""Most iterations of the solver."""

LOSS = 4.0
"""How much a class that costs twice the best counts against one that costs the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What was ready, and what each class takes with the best kernels that tuning found for it."""

    gemms: GemmSet
    free_sms: int
    times_ns: dict[int, float]
    """Class -> time."""

    @property
    def best_ns(self) -> float:
        """The oracle's."""
        return min(self.times_ns.values())


def example_of(tuned: Tuned, /, *, free_sms: int) -> Example:
    """The best of each class among what was measured."""
    times: dict[int, float] = {}
    for choice, time_ns in tuned.times_ns.items():
        class_ = GROUPED if choice.grouped else choice.degree
        times[class_] = min(time_ns, times.get(class_, math.inf))
    return Example(gemms=tuned.gemms, free_sms=free_sms, times_ns=times)


def train(examples: Sequence[Example], /, *, seed: int = 0) -> Logic:
    """Coefficients for these examples; every class of an example is a row, weighted by how good it is."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 (heavy; deciding never needs it)
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    rows, labels, weights = _rows(examples)
    if len(set(labels)) < 2:
        raise InputError(
            "all examples are best run in the same way; give GEMMs that differ more in size and number."
        )
    scaler = StandardScaler().fit(rows)
    model = LogisticRegression(max_iter=ROUNDS, C=10.0, random_state=seed)
    model.fit(scaler.transform(rows), labels, sample_weight=weights)
    coefficients, constants = model.coef_, model.intercept_
    if len(model.classes_) == 2:  # one row stands for two classes
        coefficients, constants = np.vstack([-coefficients, coefficients]), np.append(-constants, constants)
    scaled = coefficients / scaler.scale_
    shifted = constants - scaled @ scaler.mean_
    return Logic(
        classes=tuple(int(class_) for class_ in model.classes_),
        weights=tuple(tuple(float(value) for value in row) for row in scaled),
        constants=tuple(float(value) for value in shifted),
    )


def _rows(examples: Sequence[Example]) -> tuple[np.ndarray, list[int], list[float]]:
    rows, labels, weights = [], [], []
    for example in examples:
        shapes = [(one.m, one.n, one.k) for one in example.gemms.gemms]
        nbytes = example.gemms.gemms[0].dtype.nbytes
        seen = features(shapes, free_sms=example.free_sms, nbytes=nbytes)
        best = example.best_ns
        worst = max(example.times_ns.values())
        for class_ in (GROUPED, *DEGREES):
            if class_ not in example.times_ns:
                continue
            lost = example.times_ns[class_] / best - 1
            weight = math.exp(-lost / 0.01) * min(LOSS, 0.05 + worst / best - 1)
            if weight > 1e-3:
                rows.append(seen)
                labels.append(class_)
                weights.append(weight)
    return np.array(rows), labels, weights
