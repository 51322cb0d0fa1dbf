"""SimPoint: planted phases are found, and few intervals stand for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from conccl.core.errors import InputError
from conccl.sampling.intervals.bbv import read_bbv
from conccl.sampling.intervals.simpoint import BIC_SHARE, bic, cluster, project
from shared_data import shared


def planted(*sizes: int, blocks: int = 40, noise: float = 0.02, seed: int = 3) -> NDArray[np.float64]:
    """Vectors of phases that come one after the other, each with a mix of blocks of its own."""
    rng = np.random.default_rng(seed)
    rows = []
    for size in sizes:
        mix = rng.random(blocks) * (rng.random(blocks) < 0.3) + 1e-3
        rows.append(1000 * mix * (1 + noise * rng.standard_normal((size, blocks))).clip(0.5, 1.5))
    return np.vstack(rows)


@pytest.mark.parametrize("sizes", [(30, 50), (20, 20, 60), (10, 30, 20, 15, 25)])
def test_planted_phases_are_told_apart(sizes: tuple[int, ...]) -> None:
    found = cluster(project(planted(*sizes)), most=20)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    assert found.count == len(sizes)
    assert all(len(set(found.labels[truth == phase])) == 1 for phase in range(len(sizes)))


def test_the_representative_is_the_member_nearest_to_the_centre() -> None:
    points = project(planted(25, 40))
    found = cluster(points, most=10)
    for group, chosen in enumerate(found.representatives):
        members = np.flatnonzero(found.labels == group)
        distances = ((points[members] - points[members].mean(axis=0)) ** 2).sum(axis=1)
        assert chosen == members[distances.argmin()]


def test_intervals_that_are_all_alike_need_one_point() -> None:
    assert cluster(project(np.tile([5.0, 0.0, 2.0], (50, 1))), most=30).count == 1


def test_one_interval_is_its_own_point() -> None:
    found = cluster(project(np.array([[1.0, 2.0]])), most=30)
    assert found.representatives.tolist() == [0]


def test_no_more_points_than_asked_for() -> None:
    assert cluster(project(planted(5, 5, 5, 5, 5, 5)), most=3).count <= 3


def test_the_same_seed_gives_the_same_points() -> None:
    first, second = (cluster(project(planted(20, 30, 9)), most=12) for _ in range(2))
    assert first.labels.tolist() == second.labels.tolist()
    assert first.scores == second.scores


def test_scaling_an_interval_changes_nothing() -> None:
    vectors = planted(10, 12)
    scaled = vectors * np.linspace(1, 9, len(vectors))[:, None]
    assert np.allclose(project(vectors), project(scaled))


def test_an_empty_interval_is_refused() -> None:
    with pytest.raises(InputError, match="profile the run again"):
        project(np.array([[1.0, 2.0], [0.0, 0.0]]))


def test_the_score_prefers_the_true_number_of_groups() -> None:
    points = project(planted(40, 40))
    halves = np.repeat([0, 1], 40)
    centres = np.vstack([points[:40].mean(axis=0), points[40:].mean(axis=0)])
    one = bic(points, np.zeros(80, np.int64), points.mean(axis=0)[None, :])
    assert bic(points, halves, centres) > one


@settings(max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 12), st.integers(0, 9))
def test_groups_are_complete_and_the_choice_reaches_its_share(sizes: list[int], most: int, seed: int) -> None:
    found = cluster(project(planted(*sizes, seed=seed)), most=most)
    assert set(found.labels) == set(range(found.count))
    assert list(dict.fromkeys(found.labels.tolist())) == list(range(found.count))  # as they appear
    assert (found.labels[found.representatives] == np.arange(found.count)).all()
    low, high = min(found.scores.values()), max(found.scores.values())
    assert any(
        score >= low + BIC_SHARE * (high - low) and groups >= found.count
        for groups, score in found.scores.items()
    )


def test_a_real_profile_needs_few_points() -> None:
    vectors = read_bbv(shared("sampling/own_cpuw_expbbv_1M.bb"))
    found = cluster(project(vectors), most=30)
    assert 3 <= found.count <= 12  # SimPoint 3.2 finds 8 in these 640 intervals
