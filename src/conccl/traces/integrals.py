"""Integrals over time of what rows add up to: how many run, how many CTAs they hold, how fast they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Times

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Integral:
    """The integral of a function that is constant between edges and 0 outside them."""

    edges_ns: Times
    value: Numbers
    """One entry for each stretch between neighbouring edges."""
    _before: Numbers = field(init=False)
    """The integral up to each edge."""

    def __post_init__(self) -> None:
        before = np.zeros(max(1, len(self.edges_ns)))
        np.cumsum(self.value * np.diff(self.edges_ns), out=before[1:])
        object.__setattr__(self, "_before", before)

    def between(self, start_ns: Times, end_ns: Times, /) -> Numbers:
        """The integral over each [start, end)."""
        return self._until(end_ns) - self._until(start_ns)

    def _until(self, moments_ns: Times) -> Numbers:
        if len(self.edges_ns) < 2:
            return np.zeros(len(moments_ns))
        at = np.clip(moments_ns, self.edges_ns[0], self.edges_ns[-1])
        stretch = np.clip(np.searchsorted(self.edges_ns, at, side="right") - 1, 0, len(self.value) - 1)
        return self._before[stretch] + self.value[stretch] * (at - self.edges_ns[stretch])


def level(edges_ns: Times, /, *, start_ns: Times, end_ns: Times, weight: Numbers | None = None) -> Numbers:
    """For each stretch between edges, the summed weight (1 each: the count) of the rows that run there.

    Every start and end must be an edge.
    """
    opens = np.searchsorted(edges_ns, start_ns)
    closes = np.searchsorted(edges_ns, end_ns)
    count = len(edges_ns)
    change = np.bincount(opens, weights=weight, minlength=count) - np.bincount(
        closes, weights=weight, minlength=count
    )
    return np.cumsum(change)[:-1].astype(np.float64)
