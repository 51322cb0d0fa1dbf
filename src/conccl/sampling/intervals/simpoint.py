"""SimPoint: vectors of intervals are projected and clustered; one interval a cluster stands for it.

After Sherwood, Perelman, Hamerly and Calder (ASPLOS 2002) and the SimPoint 3 paper (JILP 2005); an
implementation of its own on scikit-learn.
"""

from __future__ import annotations

import math
import threading
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from conccl.core.errors import InputError

DIMENSIONS = 15
"""Of the random projection (SimPoint's default)."""
BIC_SHARE = 0.9
"""Of the range of scores that a clustering must reach (SimPoint's default)."""
UNEXPLAINED = 0.03
"""Share of the whole variance below which what groups leave unexplained is not worth another group. Without
such a floor the score of a regular program grows with every split of almost identical intervals."""
RESTARTS = 5
_TINY = 1e-12
ITERATIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """n intervals in k groups."""

    labels: NDArray[np.int64]
    """[n] the group of each."""
    representatives: NDArray[np.int64]
    """[k] the interval nearest to the centre of each."""
    scores: dict[int, float]
    """Number of groups tried -> its Bayesian information criterion."""

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.representatives)


def load_scikit_learn() -> threading.Thread:
    """Begin to import scikit-learn, which takes longer than many a native run, while a program runs."""
    thread = threading.Thread(target=_kmeans, daemon=True)
    thread.start()
    return thread


def _kmeans() -> Any:
    from sklearn.cluster import KMeans  # noqa: PLC0415 (a second to import)

    return KMeans


def project(vectors: sparse.csr_array | NDArray[np.float64], /, *, seed: int = 0) -> NDArray[np.float64]:
    """Rows scaled to sum to 1, projected onto `DIMENSIONS` random directions, uniform in [-1, 1]."""
    rows = sparse.csr_array(vectors)
    totals = np.asarray(rows.sum(axis=1)).ravel()
    if rows.shape[0] == 0 or (totals <= 0).any():
        raise InputError(
            "an interval without executions cannot be compared with others; profile the run again."
        )
    directions = np.random.default_rng(seed).uniform(-1, 1, (rows.shape[1], DIMENSIONS))
    return np.asarray(sparse.diags_array(1.0 / totals) @ (rows @ directions))


def bic(points: NDArray[np.float64], labels: NDArray[np.int64], centres: NDArray[np.float64], /) -> float:
    """Score of a clustering under spherical Gaussians of one variance (Pelleg and Moore, ICML 2000)."""
    count, dimensions = points.shape
    groups = len(centres)
    squares = float(((points - centres[labels]) ** 2).sum())
    floor = max(UNEXPLAINED * float(points.var(axis=0).mean()), _TINY)
    variance = max(squares / max(count - groups, 1) / dimensions, floor)
    sizes = np.bincount(labels, minlength=groups).astype(float)
    sizes = sizes[sizes > 0]
    likelihood = float((sizes * np.log(sizes / count)).sum())
    likelihood -= count * dimensions / 2 * math.log(2 * math.pi * variance) + squares / (2 * variance)
    parameters = groups - 1 + groups * dimensions + 1
    return float(likelihood - parameters / 2 * math.log(count))


def cluster(
    points: NDArray[np.float64], /, *, most: int, share: float = BIC_SHARE, seed: int = 0
) -> Clustering:
    """The fewest groups whose score reaches this share of the range, sought by bisection like SimPoint."""
    limit = min(most, len(np.unique(points.round(12), axis=0)))
    tried = {k: _fit(points, k, seed) for k in {1, limit}}

    def reaches(k: int) -> bool:
        scores = [fit[0] for fit in tried.values()]
        return tried[k][0] >= min(scores) + share * (max(scores) - min(scores))

    low, high = 1, limit  # low does not reach it, high does
    if reaches(1):
        high = 1
    while high - low > 1:
        middle = (low + high) // 2
        tried[middle] = _fit(points, middle, seed)
        low, high = (low, middle) if reaches(middle) else (middle, high)
    best = min(k for k in tried if reaches(k))
    _, labels, centres = tried[best]
    return in_order(
        Clustering(
            labels=labels,
            representatives=_nearest(points, labels, centres),
            scores={k: fit[0] for k, fit in sorted(tried.items())},
        )
    )


def in_order(clustering: Clustering, /) -> Clustering:
    """The same groups, numbered as they first appear in the run."""
    _, first = np.unique(clustering.labels, return_index=True)
    order = np.argsort(first)
    return Clustering(
        labels=np.argsort(order)[clustering.labels],
        representatives=clustering.representatives[order],
        scores=clustering.scores,
    )


def _fit(
    points: NDArray[np.float64], groups: int, seed: int
) -> tuple[float, NDArray[np.int64], NDArray[np.float64]]:
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 (comes with scikit-learn)

    with threadpool_limits(limits=1), warnings.catch_warnings():  # more threads cost more than they give
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer groups than asked for are welcome
        fit = _kmeans()(groups, n_init=RESTARTS, max_iter=ITERATIONS, random_state=seed).fit(points)
    used, labels = np.unique(fit.labels_, return_inverse=True)
    centres = fit.cluster_centers_[used]
    return bic(points, labels, centres), labels.astype(np.int64), centres


def _nearest(
    points: NDArray[np.float64], labels: NDArray[np.int64], centres: NDArray[np.float64]
) -> NDArray[np.int64]:
    """For each group the member nearest to its centre; the earliest of equals."""
    distances = ((points - centres[labels]) ** 2).sum(axis=1)
    order = np.lexsort((np.arange(len(points)), distances, labels))
    _, first = np.unique(labels[order], return_index=True)
    return order[first]
