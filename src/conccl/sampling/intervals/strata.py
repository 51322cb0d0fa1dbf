"""Groups as strata: heavy ones get several points, and those without a point join the next group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from conccl.sampling.intervals.simpoint import Clustering, in_order


def split_heavy(
    clustering: Clustering,
    points: NDArray[np.float64],
    work: NDArray[np.float64],
    /,
    *,
    share: float,
    most: int,
) -> Clustering:
    """Part groups of more than this share of the work into stretches of the run, each with its own point.

    What one point is off by weighs as much as its group; several points of a group, spread over the run, err
    in different directions (stratified sampling). No more than `most` groups come out.
    """
    group_work = np.bincount(clustering.labels, weights=work) / work.sum()
    pieces = np.ones(clustering.count, np.int64)
    while pieces.sum() < most and (group_work / pieces).max() > share:
        pieces[(group_work / pieces).argmax()] += 1
    labels = np.zeros_like(clustering.labels)
    chosen: list[int] = []
    for group, wanted in enumerate(pieces):
        members = np.flatnonzero(clustering.labels == group)
        centre = points[members].mean(axis=0)
        for stretch in _stretches(members, work, int(wanted)):
            labels[stretch] = len(chosen)
            chosen.append(int(stretch[((points[stretch] - centre) ** 2).sum(axis=1).argmin()]))
    return in_order(
        Clustering(labels=labels, representatives=np.array(chosen, np.int64), scores=clustering.scores)
    )


def _stretches(members: NDArray[np.int64], work: NDArray[np.float64], wanted: int) -> list[NDArray[np.int64]]:
    """Members in the order of the run, in parts of about equal work; none is empty."""
    elapsed = np.cumsum(work[members]) - work[members] / 2
    part = np.minimum((elapsed / work[members].sum() * wanted).astype(np.int64), wanted - 1)
    return [members[part == number] for number in np.unique(part)]


def without(clustering: Clustering, missed: NDArray[np.int64], points: NDArray[np.float64], /) -> Clustering:
    """Let groups whose point was not reached join the group with the nearest point that was."""
    lost = np.isin(clustering.representatives, missed)
    kept = np.flatnonzero(~lost)
    places = points[clustering.representatives]
    distances = ((places[:, None, :] - places[None, kept, :]) ** 2).sum(axis=2)
    joins = distances.argmin(axis=1)
    return Clustering(
        labels=joins[clustering.labels].astype(np.int64),
        representatives=clustering.representatives[kept],
        scores=clustering.scores,
    )
