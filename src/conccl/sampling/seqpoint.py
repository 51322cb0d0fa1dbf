"""SeqPoint: a few iterations, chosen by sequence length, that stand for a whole run.

Pati, Aga, Sinclair and Jayasena 2020, arXiv:2007.10459: what an iteration of a sequence network does follows
from the length of its sequences, so one iteration of each of a few lengths, weighted by the iterations it
stands for, gives the statistics of the whole run. Lengths may have several dimensions (source and target,
batch and length, prefill and decode); with one dimension this is the paper's method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.errors import InputError
from conccl.sampling.logs import IterationLog

Values = npt.NDArray[np.float64]
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
    if len(lengths.length) <= FEW_LENGTHS:
        return _selection(log, np.arange(len(lengths.length)), bins=0)
    for bins in range(FIRST_BINS, len(lengths.length) + 1):
        chosen = _one_of_each(lengths.length, lengths.count, values, bins=bins)
        selection = _selection(log, chosen, bins=bins)
        projection = next(p for p in selection.projections if p.statistic == statistic)
        error = projection.error_percent
        if error is None or error <= error_percent:
            return selection
    return _selection(log, np.arange(len(lengths.length)), bins=0)


def project(seqpoints: tuple[SeqPoint, ...], /, *, values: Mapping[Length, float]) -> float:
    """The whole run's sum of a statistic that was measured on the chosen iterations alone."""
    missing = [point.length for point in seqpoints if point.length not in values]
    if missing:
        raise InputError(
            f"no value for length {_text(missing[0])}, which was chosen ({len(missing)} of {len(seqpoints)} are"
            " missing). Measure the chosen iterations, or choose again from lengths that were measured."
        )
    return float(sum(point.weight * values[point.length] for point in seqpoints))


def project_speedup(
    seqpoints: tuple[SeqPoint, ...], /, *, before: Mapping[Length, float], after: Mapping[Length, float]
) -> float:
    """The whole run's speedup from one machine to another, from the chosen iterations on both."""
    return project(seqpoints, values=before) / project(seqpoints, values=after)


def _one_of_each(
    length: npt.NDArray[np.int64], count: Values, values: Values, *, bins: int
) -> npt.NDArray[np.intp]:
    """Of each non-empty bin the length whose value is nearest the bin's weighted mean."""
    cell = _cells(length, bins=bins)
    _, group = np.unique(cell, return_inverse=True)
    weight = np.bincount(group, weights=count)
    mean = np.bincount(group, weights=count * values) / weight
    distance = np.abs(values - mean[group])
    order = np.lexsort((np.arange(len(values)), -count, distance, group))
    first = np.r_[True, group[order][1:] != group[order][:-1]]
    return order[first]


def _cells(length: npt.NDArray[np.int64], *, bins: int) -> npt.NDArray[np.int64]:
    """The bin that each length falls into: equal ranges of every dimension, numbered together."""
    low, high = length.min(axis=0), length.max(axis=0)
    width = np.maximum(1, high - low + 1) / bins
    index = np.minimum(bins - 1, ((length - low) / width).astype(np.int64))
    return np.ravel_multi_index(tuple(index.T), (bins,) * length.shape[1]).astype(np.int64)


def _selection(log: IterationLog, chosen: npt.NDArray[np.intp], *, bins: int) -> Selection:
    lengths = log.distinct()
    if bins:
        cell = _cells(lengths.length, bins=bins)
        _, group = np.unique(cell, return_inverse=True)
        weight_of_group = np.bincount(group, weights=lengths.count)
        weights = weight_of_group[group[chosen]]
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


Chooser = Callable[[IterationLog, int], tuple[SeqPoint, ...]]
"""A rule that picks so many iterations of a log: SeqPoint's competitors."""
