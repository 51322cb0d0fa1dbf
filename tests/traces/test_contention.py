from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.timeline import Activity, Timeline
from conccl.traces.breakdown import sides_of
from conccl.traces.contention import Slowdowns, slowdowns
from conccl.traces.slowdown_fit import weighted_medians
from made_traces import Row, made_timeline


def measured(timeline: Timeline, *, waiting: bool = False) -> Slowdowns:
    return slowdowns(
        timeline,
        every=sides_of(timeline),
        rank=3,
        nbytes=timeline.columns["nbytes"],
        waiting=np.full(len(timeline), waiting),
    )


def gemms(*, alone: int, slowdown: float, shares: list[float], copies: int = 2) -> list[Row]:
    """Some GEMMs alone, then one for each share of its time that a transfer runs beside it."""
    rows = []
    at = 0
    for _ in range(copies):
        rows.append(Row(name="gemm", start=at, end=at + alone))
        at += 2 * alone
    for share in shares:
        length = round(alone / (1 - share + share / slowdown))
        rows.append(Row(name="gemm", start=at, end=at + length))
        if share:
            rows.append(
                Row(
                    name="transfer",
                    start=at + length - round(share * length),
                    end=at + length,
                    stream="20",
                    activity=Activity.COMMUNICATION,
                    ctas=8,
                )
            )
        at += 2 * length
    return rows


@given(
    slowdown=st.floats(1.0, 5.0),
    shares=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=8),
)
def test_a_partial_overlap_counts_by_its_share(slowdown: float, shares: list[float]) -> None:
    """However much of each instance was overlapped, the slowdown under full overlap comes out."""
    timeline = made_timeline(gemms(alone=1_000_000, slowdown=slowdown, shares=shares))
    gemm = next(kernel for kernel in measured(timeline).kernels if kernel.side == "compute")
    assert gemm.slowdown == pytest.approx(slowdown, rel=1e-3)
    assert gemm.alone_ns == 1_000_000
    assert (gemm.alone_count, gemm.overlapped_count) == (2, len(shares))
    durations = timeline.duration_ns[[name == "gemm" for name in np.array(timeline.names)[timeline.name_id]]]
    assert gemm.excess_ns == pytest.approx(int(durations.sum()) - (2 + len(shares)) * 1_000_000, abs=20_000)
    assert gemm.ctas == 8
    assert gemm.rank == 3


def test_one_odd_instance_does_not_bend_the_fit() -> None:
    rows = gemms(alone=100_000, slowdown=1.5, shares=[0.5, 0.6, 0.8, 1.0, 1.0])
    end = max(row.end for row in rows)
    rows.append(Row(name="gemm", start=end, end=end + 5_000_000))
    rows.append(
        Row(name="transfer", start=end, end=end + 5_000_000, stream="20", activity=Activity.COMMUNICATION)
    )
    gemm = next(kernel for kernel in measured(made_timeline(rows)).kernels if kernel.side == "compute")
    assert gemm.slowdown == pytest.approx(1.5, rel=0.01)


def test_without_an_isolated_instance_nothing_is_guessed() -> None:
    found = measured(made_timeline(gemms(alone=1000, slowdown=2.0, shares=[1.0, 1.0], copies=0)))
    gemm = next(kernel for kernel in found.kernels if kernel.side == "compute")
    assert (gemm.alone_ns, gemm.alone_spread, gemm.slowdown, gemm.excess_ns) == (None, None, None, None)
    assert gemm.overlapped_count == 2
    assert np.isnan(found.rate).all()


def test_communication_under_compute_is_measured_too() -> None:
    send = {"name": "send", "stream": "20", "activity": Activity.COMMUNICATION, "ctas": 16}
    rows = [
        Row(start=0, end=100, **send),
        Row(start=200, end=330, **send),
        Row(name="gemm", start=200, end=330),
    ]
    found = measured(made_timeline(rows), waiting=True)
    transfer = next(kernel for kernel in found.kernels if kernel.side == "communication")
    assert transfer.slowdown == pytest.approx(1.3)
    assert (transfer.excess_ns, transfer.ctas, transfer.waits) == (30, 16, True)


def test_transfers_of_other_sizes_are_other_kernels() -> None:
    send = {"name": "send", "stream": "20", "activity": Activity.COMMUNICATION}
    rows = [
        Row(start=0, end=100, nbytes=1, **send),
        Row(start=200, end=400, nbytes=2, **send),
        Row(name="gemm", start=200, end=400),
    ]
    found = measured(made_timeline(rows))
    transfer = next(kernel for kernel in found.kernels if kernel.side == "communication")
    assert (transfer.alone_count, transfer.slowdown) == (0, None)


def test_kernels_that_gained_come_before_those_of_which_nothing_is_known() -> None:
    transfer = {"name": "transfer", "stream": "20", "activity": Activity.COMMUNICATION}
    rows = [
        Row(name="gains", start=0, end=100_000),
        Row(name="gains", start=200_000, end=250_000),
        Row(name="unknown", start=300_000, end=400_000),
        Row(start=200_000, end=250_000, **transfer),
        Row(start=300_000, end=400_000, **transfer),
    ]
    found = [k.name for k in measured(made_timeline(rows)).kernels if k.side == "compute"]
    assert found == ["gains", "unknown"]


def test_fused_kernels_and_empty_rows_are_left_out() -> None:
    rows = [
        Row(name="fused", start=0, end=50, activity=Activity.FUSED),
        Row(name="empty", start=10, end=10),
    ]
    found = measured(made_timeline(rows))
    assert found.kernels == ()
    assert np.isnan(found.rate).all()


def test_nothing_gives_nothing() -> None:
    assert measured(made_timeline([])).kernels == ()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50), st.integers(1, 9)), min_size=1, max_size=40)
)
def test_weighted_medians_halve_the_weight(items: list[tuple[int, int, int]]) -> None:
    groups, values, weights = (np.array(column) for column in zip(*items, strict=True))
    found = weighted_medians(groups, values.astype(float), weights=weights.astype(float), count=4)
    for group in range(4):
        mine = groups == group
        if not mine.any():
            assert np.isnan(found[group])
            continue
        half = weights[mine].sum() / 2
        assert weights[mine & (values < found[group])].sum() <= half
        assert weights[mine & (values > found[group])].sum() <= half
