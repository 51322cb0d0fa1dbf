"""Integrals over time of what rows add up to: how many run, how many CTAs they hold, how fast they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Mask, Times

Numbers = npt.NDArray[np.float64]
_ALL = slice(None)


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
        return between((self,), start_ns, end_ns)[0]

    def until(self, moments: Moments, /) -> Numbers:
        """The integral up to each moment."""
        return self._before[moments.stretch] + self.value[moments.stretch] * moments.into


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """Moments as the stretches between edges that hold them, and how far into them they are."""

    stretch: npt.NDArray[np.intp]
    into: Times

    @classmethod
    def among(cls, edges_ns: Times, moments_ns: Times, /) -> Moments:
        """Those beyond the edges are moved to the outermost; there must be two edges."""
        at = np.clip(moments_ns, edges_ns[0], edges_ns[-1])
        stretch = np.clip(np.searchsorted(edges_ns, at, side="right") - 1, 0, len(edges_ns) - 2)
        return cls(stretch=stretch, into=at - edges_ns[stretch])


def between(integrals: Sequence[Integral], start_ns: Times, end_ns: Times, /) -> list[Numbers]:
    """Of integrals of the same edges, each over every [start, end)."""
    edges_ns = integrals[0].edges_ns
    if len(edges_ns) < 2:
        return [np.zeros(len(start_ns)) for _ in integrals]
    start, end = Moments.among(edges_ns, start_ns), Moments.among(edges_ns, end_ns)
    return [integral.until(end) - integral.until(start) for integral in integrals]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Rows by the edges at which they start and end; every start and end must be an edge."""

    edges_ns: Times
    opens: npt.NDArray[np.intp]
    closes: npt.NDArray[np.intp]

    @classmethod
    def among(cls, edges_ns: Times, /, *, start_ns: Times, end_ns: Times) -> Rows:
        """Rows [start, end)."""
        opens, closes = np.searchsorted(edges_ns, start_ns), np.searchsorted(edges_ns, end_ns)
        return cls(edges_ns=edges_ns, opens=opens, closes=closes)

    def level(self, *, chosen: Mask | slice = _ALL, weight: Numbers | None = None) -> Numbers:
        """For each stretch between edges, the summed weight (1 each: the count) of the chosen rows there."""
        count = len(self.edges_ns)
        weight = None if weight is None else weight[chosen]
        opened, closed = (
            np.bincount(places[chosen], weights=weight, minlength=count)
            for places in (self.opens, self.closes)
        )
        return np.cumsum(opened - closed)[:-1].astype(np.float64)
