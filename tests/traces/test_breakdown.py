from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.timeline import Activity, Clock, Lane, Span, Timeline, timeline_of
from conccl.traces.breakdown import sides_of, split, step_windows
from conccl.traces.findings import TimeSplit

ORIGIN = 1_700_000_000_000_000_000

spans = st.lists(
    st.builds(
        lambda stream, activity, start, length: Span(
            name=f"{activity.name}",
            lane=Lane(rank=0, device="0", stream=str(stream)),
            activity=activity,
            start_ns=ORIGIN + start,
            end_ns=ORIGIN + start + length,
        ),
        st.integers(0, 3),
        st.sampled_from(Activity),
        st.integers(0, 200),
        st.integers(0, 60),
    ),
    min_size=1,
    max_size=25,
)


def timeline(rows: list[Span], steps: list[int] | None = None) -> Timeline:
    made = timeline_of(rows, clock=Clock.TRACE)
    order = np.lexsort(([r.end_ns for r in rows], [r.start_ns for r in rows]))
    step = np.array(steps if steps is not None else [-1] * len(rows), dtype=np.int32)[order]
    return dataclasses.replace(made, columns={"step": step})


def parts(found: TimeSplit) -> int:
    return (
        found.compute_only_ns
        + found.communication_only_ns
        + found.both_ns
        + found.copy_only_ns
        + found.idle_ns
    )


def naive(rows: list[Span], every: list[Span] | None = None) -> TimeSplit:
    """The rules, moment by moment."""
    every = rows if every is None else every
    start, end = min(r.start_ns for r in rows), max(r.end_ns for r in rows)
    counts = dict.fromkeys(("compute_only", "communication_only", "both", "copy_only", "idle"), 0)
    for moment in range(start, end):
        own = {r.activity for r in rows if r.start_ns <= moment < r.end_ns}
        others = {r.activity for r in every if r.start_ns <= moment < r.end_ns}
        computes = bool(others & {Activity.COMPUTE, Activity.FUSED})
        communicates = bool(others & {Activity.COMMUNICATION, Activity.FUSED})
        if own - {Activity.COPY}:
            both = computes and communicates
            counts["both" if both else "compute_only" if computes else "communication_only"] += 1
        else:
            counts["copy_only" if own else "idle"] += 1
    return TimeSplit(span_ns=end - start, **{f"{key}_ns": value for key, value in counts.items()})


@given(spans)
def test_the_split_is_that_of_the_rules_and_sums_to_the_span(rows: list[Span]) -> None:
    found = split(timeline(rows))
    assert parts(found) == found.span_ns
    assert found == naive(rows)


@given(spans, st.data())
def test_each_step_is_its_own_rows_hidden_by_all(rows: list[Span], data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.integers(-1, 2), min_size=len(rows), max_size=len(rows)))
    made = timeline(rows, steps)
    windows = step_windows(made, every=sides_of(made))
    assert [window.step for window in windows] == sorted({step for step in steps if step >= 0})
    for window in windows:
        own = [row for row, step in zip(rows, steps, strict=True) if step == window.step]
        assert window.split == naive(own, rows)
        assert parts(window.split) == window.end_ns - window.start_ns


def test_a_fused_kernel_is_both_sides_by_itself() -> None:
    row = Span(
        name="all_gather_gemm",
        lane=Lane(rank=0, device="0", stream="7"),
        activity=Activity.FUSED,
        start_ns=5,
        end_ns=15,
    )
    found = split(timeline([row]))
    assert (found.both_ns, found.span_ns, found.hidden_share) == (10, 10, 1.0)


def test_work_belongs_to_the_step_that_launched_it() -> None:
    """The gradient all-reduce of step 0 runs under step 1's kernels: step 0's, and hidden."""
    compute, network = Lane(rank=0, device="0", stream="7"), Lane(rank=0, device="0", stream="20")

    def span(name: str, lane: Lane, activity: Activity, start: int, end: int) -> Span:
        return Span(name=name, lane=lane, activity=activity, start_ns=start, end_ns=end)

    rows = [
        span("backward", compute, Activity.COMPUTE, 0, 100),
        span("all_reduce", network, Activity.COMMUNICATION, 100, 150),
        span("forward", compute, Activity.COMPUTE, 110, 200),
    ]
    made = timeline(rows, [0, 0, 1])
    first, second = step_windows(made, every=sides_of(made))
    assert (first.start_ns, first.end_ns) == (0, 150)
    assert (first.split.compute_only_ns, first.split.communication_only_ns, first.split.both_ns) == (
        100,
        10,
        40,
    )
    assert (second.split.compute_only_ns, second.split.both_ns, second.split.span_ns) == (50, 40, 90)
