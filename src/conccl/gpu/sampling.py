"""How often a plan is run: until the spread of its times is small, or it has been often enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from conccl.core.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """When there are enough samples."""

    fewest: int = 7
    most: int = 30
    relative_iqr: float = 0.02
    """Interquartile range over the median and the root of their number: how well the median is known."""
    seconds: float = 2.0
    """Of samples of one cell."""

    def __post_init__(self) -> None:
        if not 1 <= self.fewest <= self.most or self.relative_iqr <= 0 or self.seconds <= 0:
            raise InputError(f"{self} can never be met; give 1 <= fewest <= most and positive limits.")

    def is_met(self, samples_ns: Sequence[int], /) -> bool:
        """Whether these are enough."""
        if len(samples_ns) < self.fewest:
            return False
        if len(samples_ns) >= self.most or sum(samples_ns) >= self.seconds * 1e9:
            return True
        low, middle, high = np.percentile(samples_ns, [25, 50, 75])
        return bool(high - low <= self.relative_iqr * middle * np.sqrt(len(samples_ns)))


def sample(run: Callable[[], int], /, *, stopping: Stopping) -> tuple[int, ...]:
    """Times of as many runs as it takes."""
    samples: list[int] = []
    while not stopping.is_met(samples):
        samples.append(run())
    return tuple(samples)
