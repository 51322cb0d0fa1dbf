"""A native run's slices, joined where no marker parts them, as intervals with vectors to group them by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from conccl.sampling.intervals.markers import Marker, place_boundaries
from conccl.sampling.intervals.native import Slices

LINE_BYTES = 64
"""Program counters this near count as one place."""
ENOUGH = 8
"""Executions below which a slice is described by where its end found the program, not by its sites."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """The run in n parts, each bounded by markers."""

    bounds: tuple[Marker | None, ...]
    """n + 1 of them; None at the start and at the end of the program."""
    vectors: sparse.csr_array
    """[n, d] what executed, rows summing to 1."""
    increases: sparse.csr_array
    """[n, s] executions of each site."""
    lengths: NDArray[np.int64]
    """[n] instructions or nanoseconds."""
    extras: NDArray[np.int64]
    """[n, e] what else was counted."""

    @property
    def count(self) -> int:
        """How many intervals there are."""
        return len(self.lengths)


def cut(slices: Slices, /) -> Intervals:
    """Join slices into intervals that begin and end at markers."""
    markers = place_boundaries(slices.increases, slices.sites)
    kept = [end for end, marker in enumerate(markers) if marker is not None]
    starts = np.array([0, *(end + 1 for end in kept)], np.int64)
    owner = np.searchsorted(starts, np.arange(slices.count), side="right") - 1
    lengths = np.maximum(slices.lengths, 1)
    join = sparse.csr_array(
        (np.ones(slices.count, np.int64), (owner, np.arange(slices.count))), shape=(len(starts), slices.count)
    )
    weighted = join.multiply(lengths[None, :])
    joined = np.asarray(join @ lengths)
    vectors = sparse.csr_array(
        sparse.diags_array(1.0 / joined) @ sparse.csr_array(weighted) @ _slice_vectors(slices)
    )
    return Intervals(
        bounds=(None, *(markers[end] for end in kept), None),
        vectors=vectors,
        increases=sparse.csr_array(join @ slices.increases),
        lengths=joined,
        extras=np.asarray(join @ slices.extras),
    )


def _slice_vectors(slices: Slices) -> sparse.csr_array:
    """Executions of sites, summing to 1; where there are hardly any, the line of the program counter."""
    totals = np.asarray(slices.increases.sum(axis=1)).ravel()
    silent = totals < ENOUGH
    share = np.where(silent, 0.0, 1.0 / np.maximum(totals, 1))
    counted = sparse.csr_array(sparse.diags_array(share) @ slices.increases)
    lines, column = np.unique(slices.pcs // np.uint64(LINE_BYTES), return_inverse=True)
    rows = np.flatnonzero(silent)
    where = sparse.csr_array((np.ones(len(rows)), (rows, column[rows])), shape=(slices.count, len(lines)))
    return sparse.csr_array(sparse.hstack([counted, where]))
