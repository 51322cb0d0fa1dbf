"""The search: it finds what predictions hide, keeps to its limits, and never repeats itself."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conccl.core.errors import InputError
from conccl.tune.search import Search

POINTS = tuple(itertools.product(range(6), range(5), range(4)))


def factors(draw, count):
    return [draw(st.floats(0.5, 2.0)) for _ in range(count)]


@settings(max_examples=30)
@given(st.data())
def test_errors_that_are_products_of_axes_are_found_out(data):
    """Predictions are all alike; the truth is a product of factors: a tenth of the space is plenty."""
    axes = [factors(data.draw, count) for count in (6, 5, 4)]
    truth = {p: 1e6 * axes[0][p[0]] * axes[1][p[1]] * axes[2][p[2]] for p in POINTS}
    found = Search(most=40, patience=40).run(
        POINTS, predicted_ns=lambda _: 1e6, measured_ns=lambda point: round(truth[point])
    )
    assert min(trial.time_ns for trial in found) <= 1.02 * min(truth.values())


def test_right_predictions_need_patience_and_no_more():
    times = {point: 1000 + 10 * sum(point) for point in POINTS}
    found = Search(most=100, patience=5).run(
        POINTS, predicted_ns=times.__getitem__, measured_ns=times.__getitem__
    )
    assert found[0].time_ns == 1000
    assert len(found) == 6


def test_no_setting_is_measured_twice_and_no_more_than_asked():
    asked = []

    def measure(point):
        asked.append(point)
        return 1000 - len(asked)

    Search(most=17).run(POINTS, predicted_ns=lambda _: 1.0, measured_ns=measure)
    assert len(asked) == len(set(asked)) == 17


def test_settings_that_fail_count_and_are_left_out():
    found = Search(most=30).run(
        POINTS, predicted_ns=lambda _: 5.0, measured_ns=lambda point: None if point[0] else 7
    )
    assert {trial.point[0] for trial in found} == {0}


def test_a_small_space_is_measured_whole():
    few = POINTS[:3]
    assert len(Search(most=100).run(few, predicted_ns=lambda _: 1.0, measured_ns=lambda _: 9)) == 3


def test_limits_are_checked():
    with pytest.raises(InputError, match="1 or more"):
        Search(most=0)
