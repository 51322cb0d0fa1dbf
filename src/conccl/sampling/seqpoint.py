"""SeqPoint: a few iterations, chosen by sequence length, that stand for a whole run.

Pati, Aga, Sinclair and Jayasena 2020, arXiv:2007.10459: what an iteration of a sequence network does follows
from the length of its sequences, so one iteration of each of a few lengths, weighted by the iterations it
stands for, gives the statistics of the whole run. Lengths may have several dimensions (source and target,
batch and length, prefill and decode); with one dimension this is the paper's method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.errors import InputError
from conccl.sampling.logs import DistinctLengths, IterationLog

Values = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
Length = tuple[int, ...]

FEW_LENGTHS = 10
"""With no more lengths than this each is a SeqPoint of its own."""

FIRST_BINS = 5
"""Bins to begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeqPoint:
    """One length that stands for others."""

    length: Length
    iteration: int
    """An iteration of the log that has it: the one to profile."""
    weight: int
    """Iterations that it stands for; the weights sum to the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A statistic of the whole run from the chosen iterations, beside the actual one where it is known."""

    statistic: str
    projected: float
    actual: float | None

    @property
    def error_percent(self) -> float | None:
        """How far the projection is off, without sign."""
        if self.actual is None or self.actual == 0:
            return None
        return 100 * abs(self.projected - self.actual) / abs(self.actual)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The chosen iterations, and how well they project each statistic that was given."""

    seqpoints: tuple[SeqPoint, ...]
    bins: int
    """Bins of each dimension's range; 0 where every length was taken."""
    projections: tuple[Projection, ...]
    lengths: int
    """Distinct lengths of the run: what was profiled to choose."""
    iterations: int


def select(log: IterationLog, /, *, statistic: str, error_percent: float = 1.0) -> Selection:
    """The fewest SeqPoints (by growing bins) that project the statistic's sum within the error wanted.

    The actual sum is taken from the log's own statistic: the mean of each length, times its iterations.
    """
    if not 0 < error_percent < 100:
        raise InputError(f"an error of {error_percent} % was asked for; give one above 0 and below 100.")
    lengths = log.distinct()
    values = lengths.statistics[statistic]
    bins = FIRST_BINS
    while len(lengths.length) > FEW_LENGTHS and bins <= len(lengths.length):
        selection = _selection(lengths, _one_of_each(lengths, values, bins=bins), bins=bins)
        error = next(p for p in selection.projections if p.statistic == statistic).error_percent
        if error is None or error <= error_percent:
            return selection
        bins += max(1, bins // 32)
    return _selection(lengths, np.arange(len(lengths.length)), bins=0)


def select_bins(log: IterationLog, /, *, statistic: str, bins: int) -> tuple[SeqPoint, ...]:
    """The SeqPoints of so many bins, whatever they project."""
    lengths = log.distinct()
    chosen = _one_of_each(lengths, lengths.statistics[statistic], bins=bins)
    return _selection(lengths, chosen, bins=bins).seqpoints


def project(seqpoints: tuple[SeqPoint, ...], /, *, values: Mapping[Length, float]) -> float:
    """The whole run's sum of a statistic that was measured on the chosen iterations alone."""
    missing = [point.length for point in seqpoints if point.length not in values]
    if missing:
        raise InputError(
            f"no value for length {_text(missing[0])}, which was chosen ({len(missing)} of {len(seqpoints)}"
            " are missing). Measure the chosen iterations, or choose again from lengths that were measured."
        )
    return float(sum(point.weight * values[point.length] for point in seqpoints))


def project_speedup(
    seqpoints: tuple[SeqPoint, ...], /, *, before: Mapping[Length, float], after: Mapping[Length, float]
) -> float:
    """The whole run's speedup from one machine to another, from the chosen iterations on both."""
    return project(seqpoints, values=before) / project(seqpoints, values=after)


def _one_of_each(lengths: DistinctLengths, values: Values, *, bins: int) -> Rows:
    """Of each non-empty bin the length whose value is nearest the bin's weighted mean."""
    group = _groups(lengths, bins=bins)
    mean = np.bincount(group, weights=lengths.count * values) / np.bincount(group, weights=lengths.count)
    distance = np.abs(values - mean[group])
    order = np.lexsort((np.arange(len(values)), -lengths.count, distance, group))
    first = np.r_[True, group[order][1:] != group[order][:-1]]
    return np.asarray(order[first])


def _groups(lengths: DistinctLengths, *, bins: int) -> Rows:
    """The bin of each length, numbered without gaps: equal ranges of every dimension, taken together."""
    low, high = lengths.length.min(axis=0), lengths.length.max(axis=0)
    width = np.maximum(1, high - low + 1) / bins
    cell = np.minimum(bins - 1, ((lengths.length - low) / width).astype(np.int64))
    return np.unique(cell, axis=0, return_inverse=True)[1].reshape(-1)


def _selection(lengths: DistinctLengths, chosen: Rows, *, bins: int) -> Selection:
    weights: Values
    if bins:
        group = _groups(lengths, bins=bins)
        weights = np.bincount(group, weights=lengths.count)[group[chosen]].astype(np.float64)
    else:
        weights = lengths.count[chosen]
    order = np.lexsort(tuple(lengths.length[chosen].T[::-1]))
    points = tuple(
        SeqPoint(
            length=tuple(int(size) for size in lengths.length[index]),
            iteration=int(lengths.iteration[index]),
            weight=round(float(weight)),
        )
        for index, weight in zip(chosen[order], weights[order], strict=True)
    )
    return Selection(
        seqpoints=points,
        bins=bins,
        projections=tuple(
            Projection(
                statistic=name,
                projected=float(np.dot(weights, values[chosen])),
                actual=float(np.dot(lengths.count, values)),
            )
            for name, values in lengths.statistics.items()
        ),
        lengths=len(lengths.length),
        iterations=int(lengths.count.sum()),
    )


def _text(length: Length) -> str:
    return "x".join(map(str, length))
