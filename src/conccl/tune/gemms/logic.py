"""How many at once: a logistic regression over what is ready, as plain numbers, decided in microseconds.

Training needs scikit-learn (`training`); deciding needs nothing but this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

GROUPED = 0
"""The class of a grouped launch, beside the degrees."""

TILE = 128
"""Outputs are counted in tiles of this side: about what a vendor's kernel gives a CTA."""

FEATURES = (
    "ready",
    "m",
    "n",
    "k",
    "waves_each",
    "waves_all",
    "less_than_a_wave",
    "more_than_a_wave",
    "intensity",
    "unlike",
)
"""What is looked at, in this order; sizes as logarithms to base 2."""

Shape = tuple[int, int, int]
"""m, n, k."""


def features(shapes: Sequence[Shape], /, *, free_sms: int, nbytes: int = 2) -> list[float]:
    """The numbers that a decision rests on; ``nbytes`` of an input element."""
    log = math.log2
    ready = len(shapes)
    tiles = outputs = steps = inputs = flops = 0
    unlike = 0.0
    first = shapes[0]
    for shape in shapes:
        m, n, k = shape
        tiles += -(-m // TILE) * -(-n // TILE)
        outputs += m * n
        steps += k
        inputs += (m + n) * k
        flops += m * n * k
        if shape != first:
            unlike = 1.0
    waves = log(tiles / free_sms)
    each = log(tiles / ready / free_sms)
    return [
        log(ready),
        log(sum(shape[0] for shape in shapes) / ready),
        log(sum(shape[1] for shape in shapes) / ready),
        log(steps / ready),
        each,
        waves,
        min(0.0, each),
        max(0.0, each),
        log(flops / (inputs + outputs) / nbytes),
        unlike,
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logic:
    """A score for each class: a constant and a weight for each feature; the highest that is allowed wins."""

    classes: tuple[int, ...]
    """Degrees, and `GROUPED`."""
    weights: tuple[tuple[float, ...], ...]
    """One row a class, in the order of `FEATURES`."""
    constants: tuple[float, ...]

    def scores(self, seen: Sequence[float], /) -> list[float]:
        """The score of every class."""
        return [
            constant + sum(map(mul, row, seen))
            for row, constant in zip(self.weights, self.constants, strict=True)
        ]

    def decide(
        self, shapes: Sequence[Shape], /, *, free_sms: int, can_group: bool, nbytes: int = 2
    ) -> tuple[int, float]:
        """The class, and its probability among those that are allowed."""
        scores = self.scores(features(shapes, free_sms=free_sms, nbytes=nbytes))
        most = 2 * len(shapes)
        allowed = [
            (score, class_)
            for class_, score in zip(self.classes, scores, strict=True)
            if class_ < most and (class_ != GROUPED or can_group)
        ]
        if not allowed:
            return 1, 1.0
        best_score, best = max(allowed)
        return best, 1 / sum(math.exp(score - best_score) for score, _ in allowed)
