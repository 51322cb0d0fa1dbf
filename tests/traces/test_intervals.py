from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.timeline import Times
from conccl.traces.intervals import NOTHING, Intervals, partition, union

LENGTH = 64

rows = st.lists(
    st.tuples(st.integers(0, LENGTH), st.integers(0, 20)).map(lambda pair: (pair[0], min(LENGTH, sum(pair)))),
    max_size=12,
)
Rows = list[tuple[int, int]]


def columns(pairs: Rows) -> tuple[Times, Times]:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def bitmap(pairs: Rows) -> np.ndarray:
    """One bool a ns: the definition that the fast code must meet."""
    held = np.zeros(LENGTH, dtype=bool)
    for start, end in pairs:
        held[start:end] = True
    return held


def moments(intervals: Intervals) -> np.ndarray:
    return bitmap(list(zip(intervals.start_ns.tolist(), intervals.end_ns.tolist(), strict=True)))


def assert_canonical(intervals: Intervals) -> None:
    assert (intervals.end_ns > intervals.start_ns).all()
    assert (intervals.start_ns[1:] > intervals.end_ns[:-1]).all()


@given(rows)
def test_union_holds_what_any_row_holds(pairs: Rows) -> None:
    joined = union(*columns(pairs))
    assert_canonical(joined)
    assert (moments(joined) == bitmap(pairs)).all()
    assert joined.total_ns == bitmap(pairs).sum()


@given(rows, rows)
def test_set_operations_are_those_of_bitmaps(first: Rows, second: Rows) -> None:
    a, b = union(*columns(first)), union(*columns(second))
    x, y = bitmap(first), bitmap(second)
    for got, expected in ((a | b, x | y), (a & b, x & y), (a - b, x & ~y)):
        assert_canonical(got)
        assert (moments(got) == expected).all()


@given(rows, rows)
def test_coverage_counts_the_moments_of_each_row(pairs: Rows, covering: Rows) -> None:
    start, end = columns(pairs)
    held = bitmap(covering)
    expected = [held[s:e].sum() for s, e in pairs]
    assert union(*columns(covering)).coverage(start, end).tolist() == expected


@given(rows, st.integers(0, LENGTH), st.integers(0, LENGTH))
def test_within_cuts_at_both_ends(pairs: Rows, start: int, end: int) -> None:
    cut = union(*columns(pairs)).within(start, end)
    expected = bitmap(pairs)
    expected[:start] = False
    expected[end:] = False
    if end > start:
        assert_canonical(cut)
        assert (moments(cut) == expected).all()


@given(rows, rows)
def test_partition_tiles_from_first_to_last_edge(first: Rows, second: Rows) -> None:
    a, b = union(*columns(first)), union(*columns(second))
    edges, (in_a, in_b) = partition(a, b)
    lengths = np.diff(edges)
    assert lengths[in_a].sum() == a.total_ns
    assert lengths[in_b].sum() == b.total_ns


def test_nothing_covers_nothing() -> None:
    assert NOTHING.total_ns == 0
    assert NOTHING.coverage(np.array([0, 5]), np.array([5, 9])).tolist() == [0, 0]
    assert len(NOTHING | NOTHING) == len(NOTHING & NOTHING) == len(NOTHING - NOTHING) == 0


def test_times_beyond_32_bits_are_exact() -> None:
    """A trace's clock is ns since 1970: floats would lose hundreds of ns."""
    origin = 1_700_000_000_000_000_000
    joined = union(np.array([origin + 1, origin + 3]), np.array([origin + 2, origin + 4]))
    assert joined.start_ns.tolist() == [origin + 1, origin + 3]
    assert joined.total_ns == 2
