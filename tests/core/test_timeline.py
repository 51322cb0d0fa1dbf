import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.errors import InputError
from conccl.core.timeline import Activity, Clock, Lane, Span, Timeline, timeline_of

lanes = st.builds(Lane, rank=st.integers(0, 3), device=st.just("gpu"), stream=st.sampled_from("ab"))


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = draw(st.integers(0, 1 << 50))
    return Span(
        name=draw(st.sampled_from(["gemm", "nccl", "copy"])),
        lane=draw(lanes),
        activity=draw(st.sampled_from(Activity)),
        start_ns=start,
        end_ns=start + draw(st.integers(0, 1000)),
    )


def span(name: str, start: int, end: int, *, rank: int = 0, stream: str = "a") -> Span:
    lane = Lane(rank=rank, device="gpu", stream=stream)
    return Span(name=name, lane=lane, activity=Activity.COMPUTE, start_ns=start, end_ns=end)


def timeline(*rows: Span) -> Timeline:
    return timeline_of(rows, clock=Clock.SIMULATED)


@given(st.lists(spans(), max_size=30))
def test_rows_are_the_spans_sorted_by_start_then_end(rows: list[Span]):
    assert list(timeline(*rows)) == sorted(rows, key=lambda row: (row.start_ns, row.end_ns))


@given(st.lists(spans(), max_size=30))
def test_the_rows_of_all_ranks_are_all_rows(rows: list[Span]):
    whole = timeline(*rows)
    assert sum(len(whole.of_rank(rank)) for rank in whole.ranks) == len(whole)
    assert all(row.lane.rank == rank for rank in whole.ranks for row in whole.of_rank(rank))


def test_equal_rows_keep_their_order():
    rows = [span("one", 5, 7), span("two", 5, 7, stream="b"), span("zero", 1, 2)]
    assert [row.name for row in timeline(*rows)] == ["zero", "one", "two"]


def test_durations_and_span():
    whole = timeline(span("a", 10, 30), span("b", 5, 6), span("c", 12, 12))
    assert whole.duration_ns.tolist() == [1, 20, 0]
    assert whole.span_ns == 25
    assert timeline().span_ns == 0
    assert timeline().ranks == ()
    assert whole[1].duration_ns == 20


def test_a_part_of_the_rows_keeps_tables_and_columns():
    whole = timeline(span("a", 0, 1), span("b", 2, 3, rank=2))
    marked = Timeline(
        clock=whole.clock,
        start_ns=whole.start_ns,
        end_ns=whole.end_ns,
        name_id=whole.name_id,
        lane_id=whole.lane_id,
        activity=whole.activity,
        names=whole.names,
        lanes=whole.lanes,
        columns={"grid": np.array([7, 8])},
    )
    part = marked.where(marked.start_ns > 0)
    assert [row.name for row in part] == ["b"]
    assert part.columns["grid"].tolist() == [8]
    assert part.names == whole.names
    assert part.ranks == (2,)


def test_columns_of_unequal_length_are_refused():
    whole = timeline(span("a", 0, 1))
    with pytest.raises(InputError, match=r"equally long; these are \[1, 2\] long"):
        Timeline(
            clock=Clock.TRACE,
            start_ns=whole.start_ns,
            end_ns=whole.end_ns,
            name_id=whole.name_id,
            lane_id=whole.lane_id,
            activity=whole.activity,
            names=whole.names,
            lanes=whole.lanes,
            columns={"grid": np.array([1, 2])},
        )


def test_a_row_that_ends_before_it_starts_is_refused():
    with pytest.raises(InputError, match="ends before it starts"):
        timeline(span("a", 5, 4))
