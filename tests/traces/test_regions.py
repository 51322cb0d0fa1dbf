from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.timeline import Activity, Timeline
from conccl.traces.breakdown import sides_of, split
from conccl.traces.contention import slowdowns
from conccl.traces.findings import OverlappedRegion
from conccl.traces.regions import BREAK_NS, IsolatedWork, isolated_work, overlapped_regions
from made_traces import Row, made_timeline

SEND = {"name": "send", "stream": "20", "activity": Activity.COMMUNICATION}


def work_of(timeline: Timeline) -> IsolatedWork:
    found = slowdowns(
        timeline,
        every=sides_of(timeline),
        rank=0,
        nbytes=timeline.columns["nbytes"],
        waiting=np.zeros(len(timeline), dtype=np.bool_),
    )
    return isolated_work(timeline, rate=found.rate)


def regions_of(timeline: Timeline, *, keep: int = 32) -> tuple[OverlappedRegion, ...]:
    window = (int(timeline.start_ns.min(initial=0)), int(timeline.end_ns.max(initial=1)))
    return overlapped_regions(
        timeline, every=sides_of(timeline), work=work_of(timeline), rank=0, window_ns=window, keep=keep
    )


def pair(*, at: int, concurrent: int) -> list[Row]:
    return [Row(name="gemm", start=at, end=at + concurrent), Row(start=at, end=at + concurrent, **SEND)]


ALONE = [Row(name="gemm", start=0, end=100_000), Row(start=200_000, end=300_000, **SEND)]
"""Both sides alone: 100 us each, so that serial is 200 us and ideal 100 us."""


@pytest.mark.parametrize(
    ("concurrent", "fraction"), [(100_000, 1.0), (200_000, 0.0), (125_000, 0.6), (250_000, -0.2)]
)
def test_a_region_stands_between_serial_and_ideal(concurrent: int, fraction: float) -> None:
    (region,) = regions_of(made_timeline([*ALONE, *pair(at=500_000, concurrent=concurrent)]))
    assert (region.compute_ns, region.communication_ns) == (100_000, 100_000)
    assert region.concurrent_ns == concurrent
    assert region.speedup == pytest.approx(200_000 / concurrent)
    assert region.fraction_of_ideal == pytest.approx(fraction)
    assert region.compute_lost_ns == region.communication_lost_ns == concurrent - 100_000
    assert region.cost_ns == concurrent - 100_000
    assert region.start_ns == 500_000
    assert (region.compute, region.communication) == (("gemm",), ("send",))
    assert region.source == "measured"


def test_a_window_holds_what_ran_before_and_after_the_overlap_too() -> None:
    """GEMM alone for 50 us, then both for 100 us at half speed, then the rest of the transfer."""
    rows = [
        *ALONE,
        Row(name="gemm", start=500_000, end=650_000),
        Row(start=550_000, end=700_000, **SEND),
    ]
    (done,) = work_of(made_timeline(rows)).within(np.array([500_000]), np.array([700_000]))
    estimate = done.estimate()
    assert estimate.overlap is not None
    assert estimate.overlap.compute_ns == pytest.approx(100_000, abs=1)
    assert estimate.overlap.communication_ns == pytest.approx(100_000, abs=1)
    assert estimate.overlap.concurrent_ns == 200_000


def test_the_cost_is_what_the_longer_side_lost() -> None:
    """Slow transfers under a long GEMM cost nothing; a GEMM slowed by transfers does."""
    slowed = [
        *ALONE,
        Row(name="long", start=400_000, end=700_000),
        Row(name="long", start=1_000_000, end=1_300_000),
        Row(start=1_000_000, end=1_200_000, **SEND),
    ]
    (region,) = regions_of(made_timeline(slowed))
    assert (region.compute_lost_ns, region.communication_lost_ns, region.cost_ns) == (0, 100_000, 0)
    slowing = [
        *ALONE,
        Row(name="long", start=400_000, end=700_000),
        Row(name="long", start=1_000_000, end=1_350_000),
        Row(start=1_000_000, end=1_100_000, **SEND),
    ]
    (region,) = regions_of(made_timeline(slowing))
    assert (region.compute_lost_ns, region.communication_lost_ns, region.cost_ns) == (50_000, 0, 50_000)
    assert region.fraction_of_ideal == pytest.approx(0.5)


def test_a_kernel_never_seen_alone_makes_the_region_unknown() -> None:
    rows = [*ALONE, Row(name="strange", start=500_000, end=600_000), Row(start=500_000, end=600_000, **SEND)]
    (region,) = regions_of(made_timeline(rows))
    assert (region.source, region.unknown_ns, region.cost_ns) == ("unknown", 100_000, None)
    assert (region.speedup, region.fraction_of_ideal, region.compute_lost_ns) == (None, None, None)


def test_a_negligible_unknown_kernel_does_not() -> None:
    rows = [*ALONE, *pair(at=500_000, concurrent=100_000)]
    rows[2:3] = [
        Row(name="gemm", start=500_000, end=597_000),
        Row(name="strange", start=597_000, end=600_000),
    ]
    (region,) = regions_of(made_timeline(rows))
    assert region.compute_ns is not None
    assert region.unknown_ns == 3000


def test_fused_kernels_are_unknown() -> None:
    rows = [Row(name="all_gather_gemm", start=0, end=100, activity=Activity.FUSED)]
    (region,) = regions_of(made_timeline(rows))
    assert region.source == "unknown"


def test_short_breaks_do_not_end_a_region_and_long_ones_do() -> None:
    def two(gap: int) -> list[Row]:
        second = 100_000 + gap
        return [
            Row(name="gemm", start=0, end=300_000),
            Row(start=0, end=100_000, **SEND),
            Row(start=second, end=second + 100_000, **SEND),
        ]

    assert [region.count for region in regions_of(made_timeline(two(BREAK_NS - 1)))] == [1]
    assert [region.count for region in regions_of(made_timeline(two(BREAK_NS)))] == [2]


def test_stretches_of_the_same_kernels_are_one_region() -> None:
    rows = [*ALONE, *pair(at=500_000, concurrent=150_000), *pair(at=800_000, concurrent=150_000)]
    (region,) = regions_of(made_timeline(rows))
    assert (region.count, region.concurrent_ns, region.cost_ns) == (2, 300_000, 100_000)
    assert (region.compute_ns, region.communication_ns) == (200_000, 200_000)


def test_a_cheap_short_kernel_does_not_name_the_region() -> None:
    rows = [
        *ALONE,
        Row(name="add", start=400_000, end=401_000),
        Row(name="add", start=500_000, end=501_000),
        Row(name="gemm", start=501_000, end=600_000),
        Row(start=500_000, end=600_000, **SEND),
    ]
    (region,) = regions_of(made_timeline(rows))
    assert region.compute == ("gemm", "add")


def test_the_costliest_come_first_and_the_number_is_bounded() -> None:
    rows = [Row(start=0, end=100_000, **SEND)]
    for i in range(9):
        at = 1_000_000 * (i + 1)
        rows += [
            Row(name=f"gemm{i}", start=at, end=at + 100_000),
            Row(name=f"gemm{i}", start=at + 500_000, end=at + 610_000 + 1000 * i),
            Row(start=at + 500_000, end=at + 610_000 + 1000 * i, **SEND),
        ]
    found = regions_of(made_timeline(rows), keep=3)
    assert [region.concurrent_ns for region in found] == [118_000, 117_000, 116_000]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["a", "b"]), st.integers(0, 300), st.integers(1, 80)),
        min_size=1,
        max_size=20,
    )
)
def test_with_no_slowdown_isolated_times_are_the_times_that_ran(
    items: list[tuple[int, str, int, int]],
) -> None:
    """Rate 1 everywhere: each side's isolated time is its union, the concurrent time that of both."""
    rows = [
        Row(
            name=name,
            start=start,
            end=start + length,
            stream=str(stream),
            activity=Activity.COMMUNICATION if stream else Activity.COMPUTE,
        )
        for stream, name, start, length in items
    ]
    timeline = made_timeline(rows)
    parts = split(timeline)
    whole = (timeline.start_ns.min(keepdims=True), timeline.end_ns.max(keepdims=True))
    estimate = isolated_work(timeline, rate=np.ones(len(timeline))).within_all(*whole).estimate()
    assert estimate.overlap is not None
    assert estimate.overlap.compute_ns == parts.compute_only_ns + parts.both_ns
    assert estimate.overlap.communication_ns == parts.communication_ns
    assert estimate.overlap.concurrent_ns == parts.span_ns - parts.idle_ns


def test_nothing_has_no_regions() -> None:
    assert regions_of(made_timeline([])) == ()
