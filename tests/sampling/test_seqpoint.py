"""SeqPoint on runs whose answer is known, and on properties that must hold for any run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.errors import InputError
from conccl.sampling.baselines import Baseline, pick
from conccl.sampling.logs import IterationLog
from conccl.sampling.seqpoint import FEW_LENGTHS, project, project_speedup, select


def log_of(lengths: list[tuple[int, ...]], times: list[float]) -> IterationLog:
    return IterationLog(
        iteration=np.arange(len(lengths)),
        length=np.array(lengths, dtype=np.int64),
        statistics={"time_ms": np.array(times, dtype=np.float64)},
    )


def run(count: int = 2000, seed: int = 3) -> IterationLog:
    """Times grow with length, with a quadratic part and noise: what attention and recurrence give."""
    random = np.random.default_rng(seed)
    length = random.lognormal(4, 0.6, count).astype(np.int64) + 1
    time = 2 + 0.05 * length + 0.0004 * length**2 + random.normal(0, 0.05, count)
    return log_of([(int(n),) for n in length], list(time))


def test_few_lengths_are_all_taken() -> None:
    selection = select(log_of([(8,), (16,), (8,), (32,)], [1.0, 2.0, 1.0, 4.0]), statistic="time_ms")
    assert [(p.length, p.iteration, p.weight) for p in selection.seqpoints] == [
        ((8,), 0, 2),
        ((16,), 1, 1),
        ((32,), 3, 1),
    ]
    assert selection.projections[0].error_percent == pytest.approx(0)


@pytest.mark.parametrize("wanted", [5.0, 1.0, 0.1, 0.01])
def test_projection_is_within_the_error_wanted(wanted: float) -> None:
    selection = select(run(), statistic="time_ms", error_percent=wanted)
    error = selection.projections[0].error_percent
    assert error is not None
    assert error <= wanted
    assert sum(point.weight for point in selection.seqpoints) == 2000


def test_a_handful_stands_for_thousands() -> None:
    assert len(select(run(), statistic="time_ms", error_percent=1.0).seqpoints) <= 12


def test_two_dimensions_are_binned_together() -> None:
    random = np.random.default_rng(1)
    pairs = [(int(a), int(b)) for a, b in random.integers(1, 60, size=(1500, 2))]
    log = log_of(pairs, [1.0 + 0.1 * a + 0.3 * b for a, b in pairs])
    selection = select(log, statistic="time_ms", error_percent=0.5)
    assert all(len(point.length) == 2 for point in selection.seqpoints)
    assert len(selection.seqpoints) < 100
    assert sum(point.weight for point in selection.seqpoints) == 1500


def test_constant_length_needs_one_point() -> None:
    selection = select(log_of([(64,)] * 50, [3.0] * 50), statistic="time_ms")
    assert [(p.length, p.weight) for p in selection.seqpoints] == [((64,), 50)]


def test_projects_another_machine_and_the_speedup() -> None:
    log = run()
    selection = select(log, statistic="time_ms", error_percent=0.2)
    distinct = log.distinct()
    before = {
        tuple(map(int, n)): float(v)
        for n, v in zip(distinct.length, distinct.statistics["time_ms"], strict=True)
    }
    after = {length: 0.5 * time + 1 for length, time in before.items()}
    actual = float(distinct.count @ np.array(list(after.values())))
    assert project(selection.seqpoints, values=after) == pytest.approx(actual, rel=0.01)
    speedup = float(distinct.count @ distinct.statistics["time_ms"]) / actual
    assert project_speedup(selection.seqpoints, before=before, after=after) == pytest.approx(
        speedup, rel=0.01
    )


def test_a_chosen_length_without_value_is_named() -> None:
    selection = select(run(), statistic="time_ms")
    with pytest.raises(InputError, match="no value for length"):
        project(selection.seqpoints, values={})


@pytest.mark.parametrize("wanted", [0.0, -1.0, 100.0, float("nan")])
def test_errors_that_cannot_be_wanted(wanted: float) -> None:
    with pytest.raises(InputError, match="give one above 0"):
        select(run(50), statistic="time_ms", error_percent=wanted)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.floats(0.1, 100)), min_size=1, max_size=200),
    st.sampled_from([10.0, 1.0, 0.01]),
)
def test_weights_always_sum_to_the_run(rows: list[tuple[int, float]], wanted: float) -> None:
    selection = select(
        log_of([(n,) for n, _ in rows], [t for _, t in rows]), statistic="time_ms", error_percent=wanted
    )
    assert sum(point.weight for point in selection.seqpoints) == len(rows)
    assert len({point.length for point in selection.seqpoints}) == len(selection.seqpoints)
    if selection.bins == 0:
        assert selection.projections[0].error_percent == pytest.approx(0, abs=1e-6)
    assert selection.lengths > FEW_LENGTHS or selection.bins == 0


@pytest.mark.parametrize("rule", list(Baseline))
def test_baselines_stand_for_the_whole_run(rule: Baseline) -> None:
    points = pick(run(), baseline=rule, count=7, statistic="time_ms")
    assert len(points) == 7
    assert sum(point.weight for point in points) == 2000


def test_seqpoint_beats_what_people_do() -> None:
    log = run()
    chosen = select(log, statistic="time_ms", error_percent=0.5).seqpoints
    times = dict(enumerate(log.statistics["time_ms"]))
    actual = float(log.statistics["time_ms"].sum())

    def error(points: tuple) -> float:
        return abs(sum(p.weight * times[p.iteration] for p in points) - actual) / actual

    others = [
        error(pick(log, baseline=rule, count=len(chosen), statistic="time_ms"))
        for rule in (Baseline.FIRST, Baseline.MEDIAN, Baseline.FREQUENT)
    ]
    assert error(chosen) < min(others)
