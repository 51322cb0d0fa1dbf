"""Markers, the places that bound intervals: an instruction, and how often it has executed.

A count of retired instructions names no place that another run, a translator or a simulator would find again;
an instruction and its count do (LoopPoint, HPCA 2022, bounds regions in the same way).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

RARE = 30
"""Executions in a slice on both sides of a boundary below which a site places it too coarsely."""
FREQUENT = 20_000
"""Executions in a slice above which watching a site would slow a translator down."""


class SiteKind(enum.StrEnum):
    """What kind of instruction is counted."""

    CALL = "call"
    JUMP = "jump"
    BRANCH = "branch"
    """Conditional: it counts where it is taken."""
    BLOCK = "block"
    """Any instruction, where a translator counts all of them."""

    @property
    def number(self) -> int:
        """As in enum agent_kind."""
        return list(SiteKind).index(self)

    @staticmethod
    def of(number: int, /) -> SiteKind:
        """The kind with this number."""
        return list(SiteKind)[number]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """An instruction that can be counted."""

    path: str
    """The executable or library."""
    pc: int
    """Its link-time address, as disassemblers print it."""
    kind: SiteKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The execution of a site with this number, counted from 1 at the start of the program."""

    site: Site
    count: int


def place_boundaries(increases: sparse.csr_array, sites: tuple[Site, ...], /) -> list[Marker | None]:
    """A marker for the end of each slice but the last; None where nothing that is counted goes on.

    The marker is the first execution behind the boundary of a site that executed on both sides of it. Few
    sites serve for all boundaries: those that qualify most often are taken first.
    """
    ends = increases.shape[0] - 1
    before, behind = increases[:-1], increases[1:]
    both = sparse.csr_array(before.minimum(behind))
    most = sparse.csr_array(before.maximum(behind))
    chosen = _cover(both, most)
    totals = _running_totals(increases, np.unique(chosen[chosen >= 0]))
    return [
        Marker(site=sites[site], count=int(totals[int(site)][end]) + 1) if site >= 0 else None
        for end, site in zip(range(ends), chosen, strict=True)
    ]


def _cover(both: sparse.csr_array, most: sparse.csr_array) -> NDArray[np.int64]:
    """For each boundary a site, from as few sites as a greedy choice needs; -1 where there is none."""
    fit = _where(both, most, low=RARE, high=FREQUENT)
    chosen = np.full(both.shape[0], -1, np.int64)
    columns = sparse.csc_array(fit)
    open_rows = np.ones(both.shape[0], bool)
    gains = np.diff(columns.indptr).astype(np.int64)
    while gains.size and gains.max() > 0:
        best = int(gains.argmax())
        rows = columns.indices[columns.indptr[best] : columns.indptr[best + 1]]
        gain = int(open_rows[rows].sum())
        if gain < gains[best]:  # what others serve already no longer counts for it
            gains[best] = gain
            continue
        chosen[rows[open_rows[rows]]] = best
        open_rows[rows] = False
        gains[best] = 0
    for row in np.flatnonzero(open_rows):  # coarser, or costlier, rather than none
        begin, end = both.indptr[row], both.indptr[row + 1]
        if end > begin:
            counts = both.data[begin:end]
            rare = np.where(counts < RARE, counts, 0)
            pick = rare.argmax() if rare.max() > 0 else counts.argmin()
            chosen[row] = both.indices[begin + int(pick)]
    return chosen


def _where(both: sparse.csr_array, most: sparse.csr_array, *, low: int, high: int) -> sparse.csr_array:
    """Ones where a site executed at least `low` times on both sides and at most `high` on either."""
    enough = both.copy()
    enough.data = (enough.data >= low).astype(np.int8)
    seldom = most.copy()
    seldom.data = (seldom.data <= high).astype(np.int8)
    fit = sparse.csr_array(enough.multiply(seldom))
    fit.eliminate_zeros()
    return fit


def _running_totals(increases: sparse.csr_array, sites: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """Executions up to the end of each slice, for the sites that are needed."""
    columns = sparse.csc_array(increases[:, sites]) if len(sites) else None
    return (
        {int(site): np.cumsum(columns[:, [i]].toarray().ravel()) for i, site in enumerate(sites)}
        if columns is not None
        else {}
    )
