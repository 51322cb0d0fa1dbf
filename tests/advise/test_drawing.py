from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.advise.analysis import Drawing
from conccl.advise.drawing import draw
from conccl.core.timeline import Activity
from conccl.traces.breakdown import sides_of, split, step_windows
from conccl.traces.states import STATES
from conccl.traces.trace import Step
from made_traces import Row, made_timeline

STEPS = tuple(Step(number=i, name=f"ProfilerStep#{i}", start_ns=0, end_ns=1) for i in range(4))


def drawn(rows: list[Row], *, keep: int = 1000, chosen: int | None = None) -> Drawing:
    timeline = made_timeline(rows)
    every = sides_of(timeline)
    windows = step_windows(timeline, every=every)
    picked = None if chosen is None else windows[chosen]
    found = draw(timeline, every=every, windows=windows, steps=STEPS, chosen=picked, keep=keep)
    assert found is not None
    return found


spans = st.lists(
    st.tuples(st.sampled_from(Activity), st.integers(0, 3), st.integers(0, 150), st.integers(0, 40)),
    min_size=1,
    max_size=20,
)


@given(spans)
def test_states_fill_the_window_and_add_up_to_the_split(items: list[tuple[Activity, int, int, int]]) -> None:
    rows = [
        Row(name=activity.name, activity=activity, stream=str(stream), start=start, end=start + length)
        for activity, stream, start, length in items
    ]
    found = drawn(rows)
    expected = split(made_timeline(rows))
    assert found.span_ns == expected.span_ns
    length = found.state_end_ns - found.state_start_ns
    assert (length > 0).all()
    if found.span_ns:
        assert found.state_start_ns[0] == 0
        assert found.state_end_ns[-1] == found.span_ns
    assert (found.state_start_ns[1:] == found.state_end_ns[:-1]).all()
    assert (found.state[1:] != found.state[:-1]).all()
    for number, name in enumerate(STATES):
        assert length[found.state == number].sum() == getattr(expected, f"{name}_ns")


def test_everything_is_drawn_where_it_is_little() -> None:
    found = drawn([Row(name="a", start=100, end=200, step=0), Row(name="b", start=300, end=400, step=1)])
    assert found.window == "the whole trace"
    assert (found.origin_ns, found.span_ns) == (100, 300)
    assert found.start_ns.tolist() == [0, 200]
    assert [found.names[name] for name in found.name_id] == ["a", "b"]
    assert [(mark.name, mark.start_ns, mark.end_ns) for mark in found.marks] == [
        ("ProfilerStep#0", 0, 100),
        ("ProfilerStep#1", 200, 300),
    ]


def test_the_step_of_median_length_is_drawn_where_there_is_much() -> None:
    rows = [
        Row(name="k", start=1000 * step + 10 * i, end=1000 * step + 10 * i + width, step=step)
        for step, width in enumerate((3, 9, 5))
        for i in range(4)
    ]
    found = drawn(rows, keep=4)
    assert "ProfilerStep#2" in found.window
    assert len(found.start_ns) == 4


def test_the_step_asked_for_is_drawn() -> None:
    rows = [Row(name="k", start=100 * step, end=100 * step + 50, step=step) for step in range(3)]
    assert drawn(rows, chosen=1).window == "ProfilerStep#1"


@pytest.mark.parametrize("step", [-1, 0])
def test_a_window_of_too_many_rows_is_drawn_in_part(step: int) -> None:
    rows = [Row(name="k", start=10 * i, end=10 * i + 8, step=step) for i in range(1000)]
    found = drawn(rows, keep=100)
    assert found.window.startswith("the middle of")
    assert 90 <= len(found.start_ns) <= 101
    assert len(found.state) <= 202
    assert 4000 < found.origin_ns < 6000


def test_rows_are_clipped_to_the_window() -> None:
    rows = [
        Row(name="own", start=100, end=200, step=1),
        Row(name="other", start=50, end=150, stream="8", step=0),
        Row(name="far", start=500, end=600, step=2),
    ]
    found = drawn(rows, chosen=1)
    assert sorted(zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)) == [(0, 50), (0, 100)]
    assert set(found.names) == {"own", "other"}


def test_nothing_is_not_drawn() -> None:
    timeline = made_timeline([])
    assert draw(timeline, every=sides_of(timeline), windows=(), steps=(), chosen=None) is None
    assert np.iinfo(np.int8).max > len(STATES)
