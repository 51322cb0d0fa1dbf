from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.ops import CollectiveKind
from conccl.traces.clocks import check_clocks
from conccl.traces.collectives import arrivals, stragglers, summaries
from conccl.traces.matching import CallLabel, RankCalls, match

US = 1000
MS = 1_000_000

PLAIN = CallLabel(
    name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(Args<4096>)",
    kind=None,
    group=None,
    group_ranks=None,
    group_size=None,
    nbytes=None,
)
REDUCE = dataclasses.replace(PLAIN, kind=CollectiveKind.ALL_REDUCE, group="0", group_size=2, nbytes=1 << 20)


def calls(
    rank: int,
    times: Sequence[tuple[int, int]],
    *,
    labels: Sequence[CallLabel] = (PLAIN,),
    label: Sequence[int] | None = None,
    sequence: Sequence[int] | None = None,
) -> RankCalls:
    array = np.array(times, dtype=np.int64).reshape(-1, 2)
    count = len(array)
    return RankCalls(
        rank=rank,
        start_ns=array[:, 0],
        end_ns=array[:, 1],
        label=np.array([0] * count if label is None else label, dtype=np.int32),
        labels=tuple(labels),
        sequence=np.array([-1] * count if sequence is None else sequence, dtype=np.int64),
        ctas=np.full(count, 8, dtype=np.int64),
        step=np.full(count, -1, dtype=np.int32),
    )


def numbers(*ranks: RankCalls) -> list[list[int]]:
    found = match(ranks)
    return [found.of_rank[each.rank].tolist() for each in ranks]


def run(start: int, count: int = 6, *, late: int = 0) -> list[tuple[int, int]]:
    """Irregular collectives that end together; ``late`` ns later arrivals."""
    ends = [start + MS * (i * i + 3 * i) for i in range(count)]
    return [(end - 100 * US + late, end) for end in ends]


def test_without_metadata_the_order_pairs() -> None:
    assert numbers(calls(0, run(0)), calls(1, run(0, late=40 * US))) == [[0, 1, 2, 3, 4, 5]] * 2


def test_captures_that_begin_later_are_shifted() -> None:
    assert numbers(calls(0, run(0)), calls(1, run(0)[2:])) == [[-1, -1, 0, 1, 2, 3], [0, 1, 2, 3]]


def test_captures_of_equal_count_may_be_shifted_against_each_other() -> None:
    longer = run(0, 8)
    assert numbers(calls(0, longer[:7]), calls(1, longer[1:])) == [
        [-1, 0, 1, 2, 3, 4, 5],
        [0, 1, 2, 3, 4, 5, -1],
    ]


def test_an_offset_of_clocks_does_not_hinder_the_order() -> None:
    assert numbers(calls(0, run(0)), calls(1, run(700 * MS)[1:])) == [[-1, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]


def test_order_is_not_believed_where_ends_do_not_agree() -> None:
    """Two ranks whose calls have nothing to do with each other, such as two pipeline stages."""
    other = [
        (end + 37 * MS * (i % 3) - 50 * US, end + 37 * MS * (i % 3)) for i, (_, end) in enumerate(run(0))
    ]
    assert numbers(calls(0, run(0)), calls(1, sorted(other))) == [[-1] * 6] * 2


def test_a_rank_without_the_call_leaves_the_others_unmatched_by_known_group() -> None:
    label = dataclasses.replace(REDUCE, group_ranks=(0, 1, 2), group_size=3)
    three = [calls(rank, run(0), labels=[label], sequence=range(6)) for rank in range(3)]
    assert numbers(*three) == [[0, 1, 2, 3, 4, 5]] * 3
    assert numbers(*three[:2]) == [[0, 1, 2, 3, 4, 5]] * 2, "a rank without a trace is no hindrance"
    silent = calls(2, [], labels=[])
    assert numbers(*three[:2], silent) == [[-1] * 6, [-1] * 6, []]


def test_running_numbers_pair_whatever_the_times() -> None:
    first = calls(0, run(0, 4), labels=[REDUCE], sequence=[7, 8, 9, 10])
    second = calls(1, run(12345 * MS, 4), labels=[REDUCE], sequence=[9, 10, 11, 12])
    assert numbers(first, second) == [[-1, -1, 0, 1], [0, 1, -1, -1]]


def test_one_call_of_several_kernels_pairs_them_in_order() -> None:
    first = calls(0, run(0, 3), labels=[REDUCE], sequence=[7, 7, 8])
    second = calls(1, run(0, 3), labels=[REDUCE], sequence=[7, 7, 8])
    assert numbers(first, second) == [[0, 1, 2]] * 2


def test_a_group_name_that_means_several_groups_is_not_matched() -> None:
    """Three ranks call group "0" of two: which two belong together is not known."""
    assert numbers(*(calls(rank, run(0), labels=[REDUCE]) for rank in range(3))) == [[-1] * 6] * 3


def test_sends_are_not_matched() -> None:
    send = dataclasses.replace(REDUCE, kind=CollectiveKind.SEND)
    assert numbers(calls(0, run(0), labels=[send]), calls(1, run(0), labels=[send])) == [[-1] * 6] * 2


def test_one_rank_and_no_rank_match_nothing() -> None:
    assert match([calls(0, run(0))]).count == match([]).count == 0


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), min_size=1, max_size=12))
def test_transfer_and_wait_add_up(durations: list[tuple[int, int]]) -> None:
    ranks = [
        calls(rank, [(MS * i - pair[rank] * US, MS * i) for i, pair in enumerate(durations)])
        for rank in range(2)
    ]
    matched = match(ranks)
    assert matched.count == len(durations)
    arrived = arrivals(ranks, matched, offsets_ns={})
    total = [arrived.split(each) for each in ranks]
    for rank, split in enumerate(total):
        assert (split.transfer_ns + split.wait_ns).tolist() == [pair[rank] * US for pair in durations]
    assert total[0].transfer_ns.tolist() == [min(pair) * US for pair in durations]
    assert (np.minimum(total[0].wait_ns, total[1].wait_ns) == 0).all()
    caused = sum(straggler.caused_ns for straggler in stragglers(arrived))
    assert caused == sum(abs(a - b) * US for a, b in durations)


def test_the_straggler_is_named_with_what_it_caused() -> None:
    ranks = [calls(0, run(0)), calls(1, run(0, late=60 * US)), calls(2, run(0, late=20 * US))]
    arrived = arrivals(ranks, match(ranks), offsets_ns={})
    (straggler,) = stragglers(arrived)
    assert (straggler.rank, straggler.last, straggler.matched) == (1, 6, 6)
    assert straggler.caused_ns == 6 * (60 + 40) * US // 2


def test_a_summary_has_bandwidth_on_the_transfer() -> None:
    ranks = [
        calls(0, run(0), labels=[REDUCE], sequence=range(6)),
        calls(1, run(0, late=50 * US), labels=[REDUCE], sequence=range(6)),
    ]
    arrived = arrivals(ranks, match(ranks), offsets_ns={})
    (found,) = summaries(ranks, arrived, clocks_agree=True)
    assert (found.kind, found.group, found.ranks, found.nbytes) == ("all_reduce", "0", 2, 1 << 20)
    assert (found.calls, found.matched, found.ctas) == (12, 12, 8)
    assert (found.duration_ns, found.transfer_ns, found.wait_ns) == (450 * US, 300 * US, 150 * US)
    assert (found.skew_ns, found.last_rank) == (50 * US, 1)
    assert found.algbw == pytest.approx((1 << 20) / 50e-6)
    assert found.busbw == found.algbw, "two ranks: 2 (n - 1) / n is 1"


def test_unmatched_calls_have_neither_wait_nor_bandwidth() -> None:
    ranks = [calls(0, run(0), labels=[REDUCE])]
    arrived = arrivals(ranks, match(ranks), offsets_ns={})
    (found,) = summaries(ranks, arrived, clocks_agree=False)
    assert (found.matched, found.transfer_ns, found.wait_ns, found.algbw, found.busbw) == (0, *[None] * 4)
    assert found.duration_ns == 600 * US
    assert stragglers(arrived) == ()


def test_broadcasts_are_matched_but_not_split() -> None:
    """The root may leave early: its short call is not the transfer."""
    label = dataclasses.replace(REDUCE, kind=CollectiveKind.BROADCAST)
    ranks = [calls(rank, run(0), labels=[label], sequence=range(6)) for rank in range(2)]
    (found,) = summaries(ranks, arrivals(ranks, match(ranks), offsets_ns={}), clocks_agree=True)
    assert found.transfer_ns is None


def test_many_sizes_of_one_collective_are_one_summary() -> None:
    labels = [dataclasses.replace(REDUCE, nbytes=1000 * i) for i in range(1, 21)]
    ranks = [calls(rank, run(0, 20), labels=labels, label=range(20), sequence=range(20)) for rank in range(2)]
    (found,) = summaries(ranks, arrivals(ranks, match(ranks), offsets_ns={}), clocks_agree=True)
    assert (found.nbytes, found.matched) == (None, 40)
    assert found.algbw == pytest.approx(sum(1000 * i for i in range(1, 21)) / (20 * 100e-6))


def test_clocks_of_one_host_are_left_alone() -> None:
    ranks = [calls(0, run(0)), calls(1, run(3 * US))]
    clock = check_clocks(ranks, match(ranks))
    assert clock is not None
    assert (clock.matched, clock.end_spread_ns, clock.offsets_ns) == (6, 3 * US, {0: 0, 1: 0})
    assert clock.residual_ns == clock.end_spread_ns


def test_clocks_apart_are_aligned_through_whoever_they_share_calls_with() -> None:
    """Ranks 0 and 2 never meet; rank 1 meets both, in other groups."""
    left = dataclasses.replace(REDUCE, group="left", group_ranks=(0, 1))
    right = dataclasses.replace(REDUCE, group="right", group_ranks=(1, 2))
    ahead = {0: 0, 1: 900 * MS, 2: -40 * MS}
    times = run(0, 6)
    ranks = [
        calls(0, times, labels=[left], sequence=range(6)),
        calls(
            1,
            [(start + ahead[1], end + ahead[1]) for start, end in [*times, *times]],
            labels=[left, right],
            label=[0] * 6 + [1] * 6,
            sequence=[*range(6), *range(6)],
        ),
        calls(2, [(s + ahead[2], e + ahead[2]) for s, e in times], labels=[right], sequence=range(6)),
    ]
    clock = check_clocks(ranks, match(ranks))
    assert clock is not None
    assert clock.offsets_ns == ahead
    assert clock.residual_ns == 0
    assert clock.end_spread_ns > 900 * MS


def test_nothing_matched_says_nothing_of_clocks() -> None:
    ranks = [calls(0, run(0))]
    assert check_clocks(ranks, match(ranks)) is None
