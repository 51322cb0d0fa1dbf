"""Heavy groups get several points; groups whose point was missed are stood for by others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from conccl.sampling.intervals.simpoint import Clustering
from conccl.sampling.intervals.strata import split_heavy, without


def grouped(labels: list[int]) -> tuple[Clustering, np.ndarray]:
    """Groups whose members lie near their number, and the points."""
    rng = np.random.default_rng(1)
    points = np.array(labels, float)[:, None] + 0.01 * rng.standard_normal((len(labels), 2))
    first = [labels.index(group) for group in range(max(labels) + 1)]
    return Clustering(labels=np.array(labels), representatives=np.array(first), scores={}), points


def test_a_heavy_group_is_split_along_the_run() -> None:
    clustering, points = grouped([0] * 90 + [1] * 10)
    split = split_heavy(clustering, points, np.ones(100), share=0.5, most=10)
    assert np.bincount(split.labels).tolist() == [45, 45, 10]
    assert (np.diff(split.labels) >= 0).all()  # stretches follow each other


def test_no_more_points_than_asked_for() -> None:
    clustering, points = grouped([0] * 90 + [1] * 10)
    assert split_heavy(clustering, points, np.ones(100), share=0.01, most=5).count == 5


@given(
    st.lists(st.integers(0, 3), min_size=4, max_size=60).map(lambda rest: [0, 1, 2, 3, *rest]),
    st.floats(0.05, 1.0),
    st.integers(4, 12),
)
def test_every_group_keeps_its_own_point(labels: list[int], share: float, most: int) -> None:
    clustering, points = grouped(labels)
    split = split_heavy(clustering, points, np.ones(len(labels)), share=share, most=most)
    assert 4 <= split.count <= most
    assert (split.labels[split.representatives] == np.arange(split.count)).all()
    for group in range(split.count):  # never across the groups that were given
        assert len(set(np.array(labels)[split.labels == group])) == 1


def test_a_missed_point_is_stood_for_by_the_nearest() -> None:
    clustering, points = grouped([0, 0, 1, 1, 2, 2])
    left = without(clustering, np.array([2]), points)
    assert left.representatives.tolist() == [0, 4]
    assert set(left.labels[[2, 3]]) <= {0, 1}
    assert left.labels[[0, 1, 4, 5]].tolist() == [0, 0, 1, 1]
