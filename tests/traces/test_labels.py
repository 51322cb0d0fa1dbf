from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.timeline import Clock, Lane, Timeline
from conccl.traces.labels import labelled_work
from conccl.traces.trace import Annotations

Row = tuple[int, int, int]
"""Launch, start, duration."""


def timeline(rows: list[Row]) -> Timeline:
    table = np.array(sorted(rows, key=lambda row: row[1:]), dtype=np.int64).reshape(-1, 3)
    count = len(table)
    return Timeline(
        clock=Clock.TRACE,
        start_ns=table[:, 1],
        end_ns=table[:, 1] + table[:, 2],
        name_id=np.zeros(count, dtype=np.int32),
        lane_id=np.zeros(count, dtype=np.int32),
        activity=np.zeros(count, dtype=np.int8),
        names=("kernel",),
        lanes=(Lane(rank=0, device="0", stream="7"),),
        columns={"launch_ns": table[:, 0]},
    )


def labels(*marks: tuple[str, int, int, bool]) -> Annotations:
    names = tuple(dict.fromkeys(name for name, *_ in marks))
    return Annotations(
        names=names,
        name_id=np.array([names.index(name) for name, *_ in marks], dtype=np.int32),
        start_ns=np.array([start for _, start, _, _ in marks], dtype=np.int64),
        end_ns=np.array([end for _, _, end, _ in marks], dtype=np.int64),
        on_gpu=np.array([on_gpu for *_, on_gpu in marks], dtype=np.bool_),
    )


def gpu_windows(annotations: Annotations, made: Timeline, *, name: int) -> tuple[np.ndarray, np.ndarray]:
    """The windows of one name."""
    found = labelled_work(annotations, made)
    mine = found.name_id == name
    return found.start_ns[mine], found.end_ns[mine]


def test_an_instance_on_two_streams_is_one_window():
    # GIVEN a step whose compute and copy streams each got a window from the profiler
    found = labels(("step", 0, 10, False), ("step", 100, 180, True), ("step", 110, 200, True))
    # WHEN its GPU work is sought
    start, end = gpu_windows(found, timeline([(1, 100, 80), (2, 110, 90), (11, 300, 50)]), name=0)
    # THEN it is what the host launched under it, once
    assert (start.tolist(), end.tolist()) == ([100], [200])


def test_without_launches_the_profilers_windows_are_joined():
    found = labels(("step", 0, 10, False), ("step", 100, 180, True), ("step", 110, 200, True))
    start, end = gpu_windows(found, timeline([(-1, 100, 80), (-1, 110, 90)]), name=0)
    assert (start.tolist(), end.tolist()) == ([100], [200])


def test_an_instance_that_launched_nothing_has_no_window():
    found = labels(("a", 0, 10, False), ("b", 20, 30, False), ("a", 40, 50, False))
    start, end = gpu_windows(found, timeline([(5, 100, 1), (45, 200, 1)]), name=1)
    assert (len(start), len(end)) == (0, 0)


@given(
    st.lists(st.tuples(st.integers(-1, 30), st.integers(0, 90), st.integers(0, 9)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), min_size=1, max_size=6),
)
def test_windows_reach_from_first_start_to_last_end_of_what_was_launched(
    rows: list[Row], instances: list[tuple[int, int]]
):
    made = timeline(rows)
    found = labels(*(("a", begin, begin + length, False) for begin, length in sorted(instances)))
    expected = []
    for begin, length in sorted(instances):
        own = [(start, start + lasts) for launch, start, lasts in rows if begin <= launch <= begin + length]
        if own:
            expected.append((min(own)[0], max(end for _, end in own)))
    if any(launch >= 0 for launch, _, _ in rows):
        start, end = gpu_windows(found, made, name=0)
        assert list(zip(start.tolist(), end.tolist(), strict=True)) == expected
