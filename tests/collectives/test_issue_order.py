"""Hangs are found exactly where simulated ranks hang."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conccl.collectives.cycles import shortest_cycles
from conccl.collectives.finding import FindingKind
from conccl.collectives.issue_order import Call, check_issue_order
from conccl.core.errors import InputError
from conccl.core.ops import CollectiveKind

ALL_REDUCE = CollectiveKind.ALL_REDUCE
GROUPS = {"tp": (0, 1), "dp": (0, 1), "pp": (1, 2), "ep": (0, 2)}


def call(
    group: str, number: int = 0, *, lane: str = "s", kind: CollectiveKind = ALL_REDUCE, **fields
) -> Call:
    return Call(group=group, number=number, kind=kind, lane=lane, **fields)


def found(issued: dict[int, list[Call]], **limits):
    return check_issue_order(issued, groups=GROUPS, **limits)


def test_one_order_on_all_ranks_is_fine():
    assert found({rank: [call("tp"), call("dp"), call("tp", 1)] for rank in (0, 1)}) == ()


def test_two_groups_in_two_orders_hang():
    (finding,) = found({0: [call("tp"), call("dp")], 1: [call("dp"), call("tp")]})
    assert finding.kind is FindingKind.DEADLOCK
    assert finding.ranks == (0, 1)
    assert set(finding.calls) == {"tp#0", "dp#0"}
    assert "rank 0 issues tp#0 before dp#0 on lane 's'" in finding.sentence
    assert "rank 1 issues dp#0 before tp#0" in finding.sentence


def test_a_lane_for_each_group_is_fine_until_lanes_share_a_queue():
    issued = {
        0: [call("tp", lane="a"), call("dp", lane="b")],
        1: [call("dp", lane="b"), call("tp", lane="a")],
    }
    assert found(issued) == ()
    assert found(issued, queues=2) == ()
    (finding,) = found(issued, queues=1)
    assert finding.kind is FindingKind.DEADLOCK
    assert "queue 0" in finding.sentence


def test_three_ranks_can_hang_without_any_two_disagreeing():
    (finding,) = found(
        {0: [call("ep"), call("tp")], 1: [call("tp"), call("pp")], 2: [call("pp"), call("ep")]}
    )
    assert finding.kind is FindingKind.DEADLOCK
    assert finding.ranks == (0, 1, 2)
    assert set(finding.calls) == {"ep#0", "tp#0", "pp#0"}


def test_what_is_far_apart_in_the_issue_order_hangs_too():
    far = [call("tp", number) for number in range(20)]
    (finding,) = found({0: [call("dp"), *far], 1: [*far, call("dp")]})
    assert len(finding.calls) <= 21
    assert {"dp#0", "tp#0"} <= set(finding.calls)


def test_each_knot_is_one_finding():
    groups = dict.fromkeys("abcd", (0, 1))
    one = [call(name, lane="x" if name in "ab" else "y") for name in "abcd"]
    findings = check_issue_order({0: one, 1: one[::-1]}, groups=groups)
    assert [set(finding.calls) for finding in findings] == [{"a#0", "b#0"}, {"c#0", "d#0"}]


def test_ranks_that_disagree_on_a_call_are_shown_both():
    kinds = {0: [call("tp", kind=CollectiveKind.ALL_GATHER)], 1: [call("tp")]}
    (finding,) = found(kinds)
    assert finding.kind is FindingKind.MISMATCH
    assert "is all_gather on rank 0 and all_reduce on rank 1" in finding.sentence
    (finding,) = found({0: [call("tp", nbytes=8)], 1: [call("tp", nbytes=4)]})
    assert "all_reduce of 8 bytes on rank 0 and all_reduce of 4 bytes on rank 1" in finding.sentence


def test_a_send_matches_a_receive_and_not_a_send():
    send, recv = (call("tp", kind=kind) for kind in (CollectiveKind.SEND, CollectiveKind.RECV))
    assert found({0: [send], 1: [recv]}) == ()
    assert found({0: [send], 1: [send]})[0].kind is FindingKind.MISMATCH


def test_a_call_that_a_rank_never_issues_or_issues_twice():
    (finding,) = found({0: [call("tp")], 1: []})
    assert finding.kind is FindingKind.ABSENT
    assert finding.ranks == (1,)
    assert finding.sentence == "rank 1 never issues call 0 of group 'tp', in which rank 0 waits."
    findings = found({0: [call("tp"), call("tp")], 1: [call("tp")]})
    assert [one.kind for one in findings] == [FindingKind.MISMATCH]
    assert "twice" in findings[0].sentence


def test_unknown_groups_and_strangers_are_refused():
    with pytest.raises(InputError, match="rank 0 calls on group 'zz'; known groups: dp, ep, pp, tp"):
        found({0: [call("zz")]})
    with pytest.raises(InputError, match=r"rank 2 calls on group 'tp', whose ranks are \(0, 1\)"):
        found({2: [call("tp")]})


def crossed(sms: int) -> dict[int, list[Call]]:
    def one(group: str, lane: str) -> Call:
        return call(group, lane=lane, occupies={"sm": sms})

    return {0: [one("tp", "a"), one("dp", "b")], 1: [one("dp", "b"), one("tp", "a")]}


def test_kernels_that_do_not_fit_together_may_hang():
    assert found(crossed(66), capacity={"sm": 132}) == ()
    (finding,) = found(crossed(67), capacity={"sm": 132})
    assert finding.kind is FindingKind.POSSIBLE_DEADLOCK
    assert finding.ranks == (0, 1)
    assert "cannot start dp#0 while tp#0 holds its sm" in finding.sentence
    (finding,) = found(crossed(133), capacity={"sm": 132})
    assert finding.kind is FindingKind.DEADLOCK
    assert "needs more sm than a rank has" in finding.sentence


def test_one_lane_in_one_order_never_lacks_anything():
    calls = [call("tp", number, occupies={"sm": 132}) for number in range(3)]
    assert found({0: calls, 1: calls}, capacity={"sm": 132}) == ()


def test_engines_are_bounded_like_sms():
    calls = [call(group, lane=group, occupies={"ce": 2}) for group in ("tp", "dp")]
    assert found({0: calls, 1: calls}, capacity={"ce": 4}) == ()
    assert found({0: calls, 1: calls}, capacity={"ce": 3})[0].kind is FindingKind.POSSIBLE_DEADLOCK


def test_eight_ranks_and_twenty_calls_are_decided_in_moments():
    groups = {f"g{index}": range(8) for index in range(4)}
    calls = [
        call(f"g{index}", number, lane=f"l{index}", occupies={"sm": 33})
        for number in range(5)
        for index in range(4)
    ]
    begin = time.process_time()
    issued = dict.fromkeys(range(8), calls)
    assert check_issue_order(issued, groups=groups, capacity={"sm": 132}) == ()
    (finding,) = check_issue_order(issued, groups=groups, capacity={"sm": 131})
    assert finding.kind is FindingKind.POSSIBLE_DEADLOCK
    assert time.process_time() - begin < 5


def test_too_many_orders_are_said_not_to_be_decided():
    groups = {f"own{index}": (0,) for index in range(4)}
    issued = {0: [call(name, lane=name, occupies={"sm": 100}) for name in groups]}
    assert check_issue_order(issued, groups=groups, capacity={"sm": 132}) == ()
    (finding,) = check_issue_order(issued, groups=groups, capacity={"sm": 132}, most_states=2)
    assert finding.kind is FindingKind.UNDECIDED
    assert "more than 2 orders" in finding.sentence


class Ranks:
    """Ranks that run: an independent model to hold the checker against."""

    def __init__(self, issued, groups, capacity: int) -> None:
        self.groups, self.capacity = groups, capacity
        self.lanes: dict[tuple[int, str], list[Call]] = {}
        for rank, calls in issued.items():
            for one in calls:
                self.lanes.setdefault((rank, one.lane), []).append(one)
        self.flying: dict[tuple[str, int], set[int]] = {}

    def hang(self, source: random.Random) -> bool:
        """Start calls in random order as lanes and resources allow, until nothing can."""
        while free := [
            lane for lane, queue in self.lanes.items() if queue and self.can_start(lane[0], queue[0])
        ]:
            lane = source.choice(free)
            self.start(lane[0], self.lanes[lane][0])
        return any(self.lanes.values())

    def can_start(self, rank: int, one: Call) -> bool:
        held = sum(
            queue[0].occupies.get("sm", 0)
            for (owner, _), queue in self.lanes.items()
            if owner == rank and queue and rank in self.flying.get(queue[0].key, ())
        )
        fits = held + one.occupies.get("sm", 0) <= self.capacity
        return fits and rank not in self.flying.get(one.key, ())

    def start(self, rank: int, one: Call) -> None:
        self.flying.setdefault(one.key, set()).add(rank)
        if self.flying[one.key] == set(self.groups[one.group]):
            for queue in self.lanes.values():
                if queue and queue[0].key == one.key:
                    queue.pop(0)


def hangs(issued, groups, capacity: int, source: random.Random) -> bool:
    return Ranks(issued, groups, capacity).hang(source)


@st.composite
def systems(draw: st.DrawFn):
    """Up to four groups of up to four ranks, calls in orders that mostly agree."""
    count = draw(st.integers(2, 4))
    members = st.lists(st.integers(0, count - 1), min_size=2, max_size=count, unique=True)
    groups = {f"g{index}": tuple(sorted(draw(members))) for index in range(draw(st.integers(1, 4)))}
    calls = [
        call(
            group,
            number,
            lane=draw(st.sampled_from("ab")),
            occupies={"sm": draw(st.integers(0, 3))},
        )
        for number in range(draw(st.integers(1, 2)))
        for group in groups
    ]
    issued = {}
    for rank in range(count):
        mine = [one for one in calls if rank in groups[one.group]]
        if draw(st.integers(0, 3)) == 0:
            mine = list(draw(st.permutations(mine)))
        issued[rank] = mine
    return issued, groups, draw(st.integers(2, 6))


@given(system=systems(), seed=st.integers(0, 1 << 30))
@settings(max_examples=300, deadline=None)
def test_the_checker_agrees_with_ranks_that_run(system, seed: int):
    issued, groups, capacity = system
    findings = check_issue_order(issued, groups=groups, capacity={"sm": capacity}, most_states=100_000)
    kinds = {finding.kind for finding in findings}
    runs = [hangs(issued, groups, capacity, random.Random(seed + index)) for index in range(10)]
    if not kinds:
        assert not any(runs)
    elif kinds == {FindingKind.DEADLOCK}:
        assert all(runs)
    else:
        assert kinds == {FindingKind.POSSIBLE_DEADLOCK}


@given(system=systems())
@settings(max_examples=100, deadline=None)
def test_a_possible_hang_happens_to_somebody(system):
    """Where orders differ in their outcome, some random runs hang and some end."""
    issued, groups, capacity = system
    findings = check_issue_order(issued, groups=groups, capacity={"sm": capacity}, most_states=100_000)
    if [finding.kind for finding in findings] == [FindingKind.POSSIBLE_DEADLOCK]:
        outcomes = {hangs(issued, groups, capacity, random.Random(seed)) for seed in range(400)}
        assert outcomes == {True, False}


def test_shortest_cycles():
    edges = {1: [2], 2: [3, 1], 3: [1], 4: [5], 5: [], 6: [7], 7: [8], 8: [6]}
    cycles = [set(cycle) for cycle in shortest_cycles(edges)]
    assert {1, 2} in cycles
    assert {6, 7, 8} in cycles
    assert len(cycles) == 2
