"""Axes and marks of plots: what is drawn lies where its value is."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.report import plots
from conccl.report.plots import Bucket, Histogram, Mark, Scale, decades, nice_ticks


def test_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(plots).failed == 0


@given(st.floats(0, 1e6), st.floats(1e-3, 1e6), st.integers(3, 12))
def test_ticks_are_few_and_lie_within(low: float, span: float, most: int) -> None:
    ticks = nice_ticks(low, low + span, most=most)
    values = [value for value, _ in ticks]
    assert len(values) <= most + 1
    assert values == sorted(values)
    assert all(low - 1e-6 <= value <= low + span + 1e-6 for value in values)


@given(st.floats(1e-6, 1e6), st.floats(1, 1e6))
def test_decades_hold_both(low: float, factor: float) -> None:
    ticks = decades(low, low * factor)
    assert ticks[0][0] <= low * 1.000001
    assert ticks[-1][0] >= low * factor * 0.999999
    assert len(ticks) >= 2


@pytest.mark.parametrize("is_log", [False, True])
@given(a=st.floats(0.5, 2000), b=st.floats(0.5, 2000))
def test_what_is_larger_lies_further_along(a: float, b: float, is_log: bool) -> None:
    scale = Scale(low=1, high=1000, start=10, end=500, is_log=is_log)
    assert 10 <= scale.at(a) <= 500
    if a <= b:
        assert scale.at(a) <= scale.at(b)


def test_areas_of_marks_compare() -> None:
    whole, quarter, none = (Mark(x=0, share=share, text="").radius for share in (1.0, 0.25, 0.0))
    assert (whole - none) == pytest.approx(2 * (quarter - none))


def test_many_marks_have_short_lines() -> None:
    def histogram(count: int) -> Histogram:
        marks = tuple(Mark(x=1, share=0.1, text="") for _ in range(count))
        bucket = Bucket(low=0, high=2, height=1, text="")
        return Histogram(
            title="", rule="", x_label="", y_label="", buckets=(bucket,), marks=marks, x_ticks=(), y_ticks=()
        )

    assert histogram(3).has_room
    assert not histogram(30).has_room
