"""What a fragment is made of: lanes, engines, SMs, flags, parts, and how it joins other work."""

import time
from collections import Counter

import pytest
from hypothesis import given, settings

from collective_cases import Case, cases
from conccl.collectives.arrival import Arrivals
from conccl.collectives.choose import fragment, fragment_of
from conccl.collectives.layout import layout_of
from conccl.collectives.transfer import Direction, Embedding, Flags, Reach, Transfer
from conccl.core.errors import InputError, PlanError
from conccl.core.executor import FakeExecutor
from conccl.core.ops import (
    Collective,
    CollectiveKind,
    DType,
    Gemm,
    Memory,
    Move,
    Multicast,
    Reduce,
    Region,
    Signal,
    Swap,
)
from conccl.core.plan import Dependency, Engine, Launch, Part, Plan, Task, merged
from conccl.core.records import from_json_value, to_json_value

K = CollectiveKind


def collective(kind: CollectiveKind = K.ALL_GATHER, *, nbytes: int = 8 << 20, ranks: int = 8) -> Collective:
    return Collective(kind=kind, nbytes=nbytes, ranks=ranks)


def built(kind: CollectiveKind = K.ALL_GATHER, algorithm: str = "direct", **transfer) -> Plan:
    return fragment(collective(kind), algorithm=algorithm, transfer=Transfer(**transfer))


def of(plan: Plan, op: type) -> list[Task]:
    return [task for task in plan.tasks if isinstance(task.op, op)]


def between_ranks(plan: Plan) -> list[Task]:
    return [task for task in of(plan, Move) if task.op.source.rank != task.op.destination.rank]


def flags(plan: Plan) -> int:
    """Things that a rank tells others: what tasks of other ranks wait for."""
    rank = {task.id: task.rank for task in plan.tasks}
    told = {
        (one.task, one.part, task.rank)
        for task in plan.tasks
        for one in task.after
        if rank[one.task] != task.rank and ".enter." not in one.task
    }
    return len(told)


def test_a_direct_all_gather_of_8_ranks_is_56_moves():
    plan = built()
    assert len(between_ranks(plan)) == 8 * 7
    assert len(plan.tasks) == 8 * 7 + 8 + 8 + 8  # a copy of the own block, an entry and an exit for each rank
    assert plan.label == "all_gather: direct"


def test_each_peer_has_an_engine_and_ranks_start_with_different_peers():
    plan = built()
    for rank in range(8):
        moves = [task for task in between_ranks(plan) if task.rank == rank]
        assert len({task.lane for task in moves}) == 7
        assert [task.op.destination.rank for task in moves] == [(rank + step) % 8 for step in range(1, 8)]
    for step in range(7):
        receivers = [task.op.destination.rank for task in between_ranks(plan)[8 * step : 8 * step + 8]]
        assert sorted(receivers) == list(range(8))


def test_pushes_belong_to_the_sender_and_pulls_to_the_receiver():
    assert all(t.rank == t.op.source.rank for t in between_ranks(built(direction=Direction.PUSH)))
    assert all(t.rank == t.op.destination.rank for t in between_ranks(built(direction=Direction.PULL)))


def test_fewer_engines_than_peers_take_turns():
    plan = built(engines=2)
    lanes = Counter(task.lane for task in between_ranks(plan) if task.rank == 0)
    assert lanes == {"communication.ce0": 4, "communication.ce1": 3}


def test_back_to_back_is_one_engine_and_one_flag_for_each_peer():
    plan = built(algorithm="b2b")
    assert {task.lane for task in between_ranks(plan)} == {"communication.ce0"}
    assert flags(plan) == flags(built()) == 8 * 7
    waits = next(task.after for task in plan.tasks if task.id == "all_gather.exit.r0")
    last = {task.rank: task.id for task in between_ranks(plan)}
    assert {one.task for one in waits} >= {last[rank] for rank in range(1, 8)}


def test_chunks_need_no_more_flags_where_flags_are_per_lane():
    each = flags(built(K.REDUCE_SCATTER, chunks=4))
    once = flags(built(K.REDUCE_SCATTER, chunks=4, flags=Flags.PER_LANE))
    assert (each, once) == (8 * 7 * 4, 8 * 7)


def test_reductions_and_copies_inside_a_rank_are_made_by_a_bounded_number_of_sms():
    plan = built(K.REDUCE_SCATTER, sms=8)
    reductions = of(plan, Reduce)
    assert len(reductions) == 8
    assert {(task.engine, task.sms, task.ctas_per_sm) for task in reductions} == {(Engine.SM, 8, 1)}
    own = [task for task in of(built(sms=8), Move) if task.op.source.rank == task.op.destination.rank]
    assert {(task.engine, task.sms) for task in own} == {(Engine.SM, 8)}


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_lanes_of_a_rank_never_hold_more_sms_than_allowed(case: Case):
    plan = fragment_of(case.layout, algorithm=case.algorithm, transfer=case.transfer)
    for rank in plan.ranks:
        most: dict[str, int] = {}
        for task in plan.for_rank(rank):
            if task.engine is Engine.SM and not isinstance(task.op, Signal):
                most[task.lane] = max(most.get(task.lane, 0), task.sms)
            assert (task.sms is None) == (task.engine is Engine.COPY_ENGINE or isinstance(task.op, Signal))
        assert sum(most.values()) <= case.transfer.sms


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_regions_lie_in_the_buffers_that_the_plan_declares_and_only_staging_is_more_than_asked(case: Case):
    plan = fragment_of(case.layout, algorithm=case.algorithm, transfer=case.transfer)
    sizes = {(one.rank, one.name): one.nbytes for one in plan.buffers}
    layout = case.layout
    for position, rank in enumerate(layout.ranks):
        for region in (layout.whole_input(position), layout.whole_output(position)):
            if region.nbytes:
                assert sizes[rank, region.buffer] >= region.end
    limit = case.transfer.host_staging_nbytes
    host = [one for one in plan.buffers if one.memory is Memory.HOST]
    assert all(one.name == "host_staging" for one in host)
    if limit is not None:
        assert all(one.nbytes - layout.windows.host_staging.offset <= limit for one in host)
    assert from_json_value(to_json_value(plan), Plan) == plan


def test_chunks_are_parts_that_go_on_one_by_one():
    plan = built(K.ALL_GATHER, "ring", chunks=4)
    move = next(task for task in between_ranks(plan) if task.rank == 3 and task.op.source.buffer == "output")
    assert [part.stop - part.start for part in move.parts] == [(1 << 20) // 4] * 4
    waits = {one.needed_by: one.part for one in move.after if ".enter." not in one.task}
    assert waits == {None: 0, 1: 1, 2: 2, 3: None}


def test_nothing_is_moved_where_there_is_nothing():
    plan = fragment(collective(nbytes=0), algorithm="direct")
    assert {type(task.op) for task in plan.tasks} == {Signal}
    assert plan.buffers == ()


def test_one_rank_copies_its_input_and_that_is_all():
    for kind in (K.ALL_GATHER, K.ALL_REDUCE, K.REDUCE_SCATTER, K.BROADCAST):
        plan = fragment(Collective(kind=kind, nbytes=64, ranks=1))
        assert [type(task.op) for task in plan.tasks] == [Signal, Move, Signal]


def test_commands_that_write_twice_or_exchange_halve_the_commands():
    bcst = fragment(collective(), algorithm="bcst")
    assert len(of(bcst, Multicast)) == 8 * 4  # ceil(7 / 2) each
    one = layout_of(collective(K.ALL_TO_ALL), place="in_place")
    swap = fragment_of(one, algorithm="swap")
    assert len(of(swap, Swap)) == 8 * 7 // 2
    assert not of(swap, Move)


def test_a_ring_stages_two_blocks_and_a_direct_reduce_scatter_all_but_one():
    def staging(algorithm: str) -> set[int]:
        plan = built(K.REDUCE_SCATTER, algorithm)
        return {one.nbytes for one in plan.buffers if one.name == "staging"}

    assert staging("ring") == {2 << 20}
    assert staging("direct") == {7 << 20}


def test_sms_that_read_peers_need_no_staging():
    plan = built(K.REDUCE_SCATTER, engine=Engine.SM, direction=Direction.PULL)
    assert not between_ranks(plan)
    assert not [one for one in plan.buffers if one.name == "staging"]


def test_staged_bytes_leave_each_rank_once_by_two_engines():
    plan = built(algorithm="staged")
    out = [task for task in of(plan, Move) if task.op.destination.buffer == "host_staging"]
    into = [task for task in of(plan, Move) if task.op.source.buffer == "host_staging"]
    assert (len(out), len(into)) == (8, 8 * 7)
    assert {task.lane for task in out} == {"communication.ce0"}
    assert {task.lane for task in into} == {"communication.ce1"}
    assert all(task.rank == task.op.destination.rank for task in into)


def test_bounded_host_memory_makes_turns_of_which_two_are_in_flight():
    plan = fragment(
        collective(nbytes=8 * 1000, ranks=8),
        algorithm="staged",
        transfer=Transfer(reach=Reach.HOST, host_staging_nbytes=512),
    )
    assert {one.nbytes for one in plan.buffers if one.memory is Memory.HOST} == {512}
    out = [task for task in of(plan, Move) if task.op.destination.buffer == "host_staging" and task.rank == 0]
    assert [task.op.destination.offset for task in out] == [0, 256, 0, 256]
    uneven = layout_of(collective(K.SCATTER, nbytes=500, ranks=4), split_nbytes=[0, 0, 0, 500])
    fits = fragment_of(uneven, algorithm="staged", transfer=Transfer(host_staging_nbytes=512))
    assert sum(task.op.destination.buffer == "host_staging" for task in of(fits, Move)) == 1
    with pytest.raises(InputError, match="too small for 1 messages in two turns; give at least 32"):
        fragment(collective(), algorithm="staged", transfer=Transfer(host_staging_nbytes=16))


def test_reductions_beside_copy_engines_are_a_kernel_for_each_chunk():
    """One kernel for all would hold its SMs while it waits for the next chunk."""
    plan = built(K.REDUCE_SCATTER, chunks=4)
    assert len(of(plan, Reduce)) == 8 * 4
    assert not any(task.parts for task in of(plan, Reduce))
    on_sms = built(K.REDUCE_SCATTER, chunks=4, engine=Engine.SM)
    assert len(of(on_sms, Reduce)) == 8
    assert {len(task.parts) for task in of(on_sms, Reduce)} == {4}


def test_lanes_share_the_sms_that_a_rank_may_occupy():
    assert {task.sms for task in between_ranks(built(engine=Engine.SM, sms=14))} == {2}
    assert {task.sms for task in between_ranks(built(K.ALL_GATHER, "ring", engine=Engine.SM, sms=14))} == {14}
    ring = built(K.REDUCE_SCATTER, "ring", engine=Engine.SM, sms=14)
    assert {(task.lane, task.sms) for task in of(ring, Reduce)} == {("communication.sm1", 7)}


def test_one_flag_a_lane_stands_for_its_own_turn_and_not_for_later_ones():
    """Else the third turn would wait for the second, and two would never be in flight."""
    plan = fragment(
        Collective(kind=K.SEND, nbytes=4 * 256, ranks=2),
        algorithm="staged",
        transfer=Transfer(host_staging_nbytes=512, flags=Flags.PER_LANE),
    )
    out = [task for task in of(plan, Move) if task.op.destination.buffer == "host_staging"]
    into = [task for task in of(plan, Move) if task.op.source.buffer == "host_staging"]
    assert [one.task for one in out[2].after] == [into[0].id]
    assert [one.task for one in out[3].after] == [into[1].id]


def test_launch_priority_and_lane_are_those_asked_for():
    plan = fragment(
        collective(),
        transfer=Transfer(launch=Launch.PRELAUNCHED, priority=-5),
        embedding=Embedding(lane="tp", name="gather3"),
    )
    assert {(task.launch, task.priority) for task in plan.tasks} == {(Launch.PRELAUNCHED, -5)}
    assert all(task.lane.split(".")[0] == "tp" for task in plan.tasks)
    assert all(task.id.startswith("gather3.") for task in plan.tasks)


GEMM = Gemm(m=8192, n=8192, k=8192)


def gemms(ranks: int, *, parts: int = 1, nbytes: int = 0) -> Plan:
    pieces = tuple(Part(start=nbytes * k // parts, stop=nbytes * (k + 1) // parts) for k in range(parts))
    return Plan(
        tasks=tuple(Task(id=f"gemm.r{rank}", op=GEMM, rank=rank, parts=pieces) for rank in range(ranks))
    )


def run(plan: Plan, *, gemm_ns: int, other_ns: int):
    durations = {t.id: gemm_ns if t.id.startswith("gemm") else other_ns for t in plan.tasks}
    for task in plan.tasks:
        if isinstance(task.op, Signal):
            durations[task.id] = 0
    return {span.name: span for span in FakeExecutor(durations_ns=durations).run(plan)}


def test_a_collective_that_follows_a_gemm_waits_for_it():
    after = {rank: (Dependency(task=f"gemm.r{rank}"),) for rank in range(4)}
    part = fragment(collective(K.REDUCE_SCATTER, ranks=4), embedding=Embedding(after=after))
    with pytest.raises(PlanError, match="gemm"):
        part.require_whole()
    rows = run(merged([gemms(4), part]), gemm_ns=1000, other_ns=10)
    assert min(row.start_ns for name, row in rows.items() if ".move" in name) == 1000


def test_chunks_leave_while_the_gemm_that_makes_them_still_runs():
    """A fused GEMM and reduce-scatter: what a part of the GEMM has written is read as soon as it is there."""
    nbytes = 4 << 20
    producer = gemms(4, parts=4, nbytes=nbytes)

    def ready(region: Region) -> tuple[Dependency, ...]:
        last = (region.end - 1) * 4 // nbytes
        return (Dependency(task=f"gemm.r{region.rank}", part=last),)

    part = fragment(
        collective(K.REDUCE_SCATTER, nbytes=nbytes, ranks=4),
        algorithm="direct",
        embedding=Embedding(ready=ready),
    )
    rows = run(merged([producer, part]), gemm_ns=1000, other_ns=10)
    moves = sorted(row.start_ns for name, row in rows.items() if ".move" in name)
    assert moves[0] == 250
    assert moves[-1] == 1000
    needed = {one.task for task in part.tasks for one in task.after if one.task.startswith("gemm")}
    assert set(part.needs) == needed == {f"gemm.r{rank}" for rank in range(4)}


def test_a_consumer_waits_for_the_blocks_that_it_needs():
    part = fragment(collective(nbytes=4096, ranks=4), algorithm="direct", transfer=Transfer(chunks=2))
    arrivals = Arrivals(part)

    def writers(offset: int, nbytes: int) -> list[tuple[str, int | None]]:
        found = arrivals.of(Region(rank=0, buffer="output", offset=offset, nbytes=nbytes))
        return sorted((one.task.split(".")[-1], one.part) for one in found)

    assert writers(1024, 512) == [("r1-r0", 0)]
    assert writers(1024, 1024) == [("r1-r0", None)]
    assert writers(1024 + 256, 1024) == [("r1-r0", None), ("r2-r0", 0)]
    assert writers(0, 0) == []
    assert arrivals.of(Region(rank=0, buffer="input", offset=0, nbytes=8)) == ()


def test_two_collectives_of_one_lane_follow_each_other_on_every_rank():
    parts = [fragment(collective(ranks=4), embedding=Embedding(name=name)) for name in ("first", "second")]
    rows = run(merged(parts), gemm_ns=0, other_ns=10)
    for rank in range(4):
        assert rows[f"first.exit.r{rank}"].end_ns <= rows[f"second.enter.r{rank}"].start_ns


def test_a_barrier_lets_nobody_leave_before_all_have_come():
    for algorithm in ("direct", "dissemination"):
        after = {3: (Dependency(task="gemm.r3"),)}
        part = fragment(
            Collective(kind=K.BARRIER, nbytes=0, ranks=6),
            algorithm=algorithm,
            embedding=Embedding(after=after),
        )
        rows = run(merged([gemms(6), part]), gemm_ns=1000, other_ns=0)
        assert min(row.end_ns for name, row in rows.items() if ".exit." in name) == 1000


@pytest.mark.parametrize("algorithm", ["direct", "ring", "one_shot", "hierarchical"])
def test_a_plan_for_16_ranks_in_8_chunks_is_made_in_milliseconds(algorithm: str):
    """30 to 50 ms of processor time on an idle core; thrice that is allowed where others use it too."""
    one = Collective(kind=K.ALL_REDUCE, nbytes=64 << 20, ranks=16, dtype=DType.BF16)
    times = []
    for _ in range(5):
        begin = time.process_time()
        fragment(one, algorithm=algorithm, transfer=Transfer(chunks=8, gpus_per_node=8))
        times.append(time.process_time() - begin)
    assert min(times) < 0.150


@pytest.mark.parametrize("field", ["engines", "chunks", "sms", "gpus_per_node", "host_staging_nbytes"])
def test_a_transfer_of_nothing_is_refused(field: str):
    with pytest.raises(InputError, match=f"{field} is 0; it must be 1 or more"):
        Transfer(**{field: 0})


def test_rings_share_blocks_and_every_other_runs_backwards():
    plan = built(K.ALL_GATHER, "ring", engines=2)
    moves = [task for task in between_ranks(plan) if task.rank == 0]
    receivers = {task.lane: task.op.destination.rank for task in moves}
    assert receivers == {"communication.ce0": 1, "communication.ce1": 7}
    assert {task.op.nbytes for task in moves} == {(1 << 20) // 2}


def test_sm_tasks_run_in_the_partition_that_is_named():
    plan = fragment(
        collective(K.REDUCE_SCATTER), embedding=Embedding(partition="communication", partition_sms=16)
    )
    assert plan.partitions == {"communication": 16}
    assert {task.partition for task in of(plan, Reduce)} == {"communication"}
    assert {task.partition for task in between_ranks(plan)} == {None}
