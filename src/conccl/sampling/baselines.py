"""The rules that SeqPoint is measured against: what people do when they profile a few iterations."""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

from conccl.sampling.logs import IterationLog
from conccl.sampling.seqpoint import SeqPoint


class Baseline(enum.StrEnum):
    """How a few iterations are picked; each then stands for an equal share of the run unless said."""

    FIRST = "first"
    """The first ones after the first hundredth of the run (warm-up): a contiguous window."""
    MEDIAN = "median"
    """Those whose lengths are nearest the median length."""
    FREQUENT = "frequent"
    """Of the most frequent lengths, weighted by how often they occur."""
    RANDOM = "random"
    """Drawn without replacement."""
    KMEANS = "kmeans"
    """k-means on length and statistic; nearest to each centre, weighted by cluster size."""


def pick(
    log: IterationLog, /, *, baseline: Baseline, count: int, statistic: str, seed: int = 0
) -> tuple[SeqPoint, ...]:
    """So many iterations by this rule, with the iterations that each stands for."""
    total = len(log.iteration)
    count = min(count, total)
    if baseline is Baseline.FIRST:
        start = min(total - count, total // 100)
        return _points(log, np.arange(start, start + count))
    if baseline is Baseline.MEDIAN:
        size = log.length.sum(axis=1)
        return _points(log, np.argsort(np.abs(size - np.median(size)), kind="stable")[:count])
    if baseline is Baseline.RANDOM:
        return _points(log, np.sort(np.random.default_rng(seed).choice(total, size=count, replace=False)))
    if baseline is Baseline.FREQUENT:
        return _frequent(log, count)
    return _kmeans(log, count, statistic=statistic, seed=seed)


def _points(
    log: IterationLog, rows: npt.NDArray[np.intp], weights: npt.NDArray[np.float64] | None = None
) -> tuple[SeqPoint, ...]:
    """Rows of the log as points; without weights each stands for an equal share."""
    total = len(log.iteration)
    if weights is None:
        weights = np.full(len(rows), total // len(rows), dtype=np.float64)
        weights[: total % len(rows)] += 1
    return tuple(
        SeqPoint(
            length=tuple(int(size) for size in log.length[row]),
            iteration=int(log.iteration[row]),
            weight=round(float(weight)),
        )
        for row, weight in zip(rows, weights, strict=True)
    )


def _frequent(log: IterationLog, count: int) -> tuple[SeqPoint, ...]:
    distinct = log.distinct()
    chosen = np.lexsort((np.arange(len(distinct.count)), -distinct.count))[:count]
    rows = np.searchsorted(log.iteration, distinct.iteration[chosen])
    shares = distinct.count[chosen] / distinct.count[chosen].sum() * len(log.iteration)
    return _points(log, rows, _rounded(shares))


def _kmeans(log: IterationLog, count: int, *, statistic: str, seed: int) -> tuple[SeqPoint, ...]:
    from sklearn.cluster import KMeans  # noqa: PLC0415 (half a second to import)
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    distinct = log.distinct()
    features = np.column_stack([distinct.length, distinct.statistics[statistic]]).astype(np.float64)
    features /= np.maximum(features.std(axis=0), 1e-12)
    count = min(count, len(features))
    with threadpool_limits(limits=1):  # its threads spin for each other on a busy machine
        model = KMeans(n_clusters=count, n_init=4, random_state=seed)
        model.fit(features, sample_weight=distinct.count)
    distance = np.linalg.norm(features - model.cluster_centers_[model.labels_], axis=1)
    order = np.lexsort((distance, model.labels_))
    first = order[np.r_[True, model.labels_[order][1:] != model.labels_[order][:-1]]]
    weights = np.bincount(model.labels_, weights=distinct.count, minlength=count)
    rows = np.searchsorted(log.iteration, distinct.iteration[first])
    return _points(log, rows, weights[model.labels_[first]])


def _rounded(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Whole numbers that sum to the same: the largest remainders are rounded up."""
    whole = np.floor(shares)
    left = round(float(shares.sum() - whole.sum()))
    whole[np.argsort(whole - shares, kind="stable")[:left]] += 1
    return whole
