"""What tells strategies apart is in the tasks' fields and nowhere else."""

import dataclasses
import itertools

import pytest

from conccl.core.errors import InputError
from conccl.core.hardware import CopyEngines, System, Topology
from conccl.core.kinds import CollectiveKind, Memory
from conccl.core.ops import Collective, Copy, Gemm, Move, Reduce
from conccl.core.pair import Dependence, Pair
from conccl.core.plan import Engine, Plan, Side
from conccl.core.records import from_json_value, to_json_value
from conccl.strategies.choices import strategy
from conccl.strategies.lower import isolated, lower
from made_kernels import device, tiled_gemms

GEMM = Gemm(m=1280, n=1280, k=1024)
GATHER = Collective(kind=CollectiveKind.ALL_GATHER, nbytes=8 << 20, ranks=4)
OFFLOAD = Copy(nbytes=8 << 20, source=Memory.DEVICE, destination=Memory.HOST)
SYSTEM = System(device=device(), gpus=4)

INDEPENDENT = Pair(compute=GEMM, communication=GATHER)
FEEDS = Pair(compute=GEMM, communication=OFFLOAD, dependence=Dependence.COMPUTE_FEEDS_COMMUNICATION)
FED = Pair(
    compute=GEMM,
    communication=Copy(nbytes=8 << 20, source=Memory.HOST, destination=Memory.DEVICE),
    dependence=Dependence.COMMUNICATION_FEEDS_COMPUTE,
)
WHOLE = (
    "serial",
    "baseline",
    "prioritized",
    "partitioned",
    "prioritized_partitioned",
    "ce",
    "ce_trimmed",
    "nccl_zero",
)


def lowered(pair: Pair, name: str) -> Plan:
    return lower(pair, strategy(name), system=SYSTEM, kernels_of=tiled_gemms)


def sides(plan: Plan, rank: int = 0):
    tasks = plan.for_rank(rank)
    return (
        [task for task in tasks if task.side is Side.COMPUTE],
        [task for task in tasks if task.side is Side.COMMUNICATION],
    )


@pytest.mark.parametrize("name", WHOLE)
def test_every_plan_is_whole_and_round_trips_through_json(name):
    plan = lowered(INDEPENDENT, name)
    plan.require_whole()
    assert plan.ranks == (0, 1, 2, 3)
    assert from_json_value(to_json_value(plan), Plan) == plan


def test_serial_waits_and_baseline_does_not():
    _, (serial,) = sides(lowered(INDEPENDENT, "serial"))
    assert [one.task for one in serial.after] == ["compute.r0"]
    (compute,), (communication,) = sides(lowered(INDEPENDENT, "baseline"))
    assert compute.after == communication.after == ()
    assert communication.priority == compute.priority
    assert lowered(INDEPENDENT, "baseline").for_rank(0) == (compute, communication)


def test_prioritized_is_issued_first_with_high_priority_and_one_cta_an_sm():
    plan = lowered(INDEPENDENT, "prioritized")
    communication, compute = plan.for_rank(0)
    assert communication.side is Side.COMMUNICATION
    assert communication.priority < compute.priority
    assert (communication.sms, communication.ctas_per_sm) == (
        24,
        1,
    )  # what the cost model says fills the link


def test_partitions_are_disjoint_and_in_whole_groups():
    plan = lowered(INDEPENDENT, "partitioned:12")
    assert dict(plan.partitions) == {"compute": 88, "communication": 12}
    (compute,), (communication,) = sides(plan)
    assert (compute.partition, communication.partition) == ("compute", "communication")
    assert communication.priority == 0
    assert sides(lowered(INDEPENDENT, "prioritized_partitioned:12"))[1][0].priority < 0


def test_a_partition_that_nobody_asked_a_size_of_gets_one_from_the_slowdowns():
    sms = lowered(INDEPENDENT, "partitioned").partitions["communication"]
    assert sms in (4, 8, 16, 32)


@pytest.mark.parametrize("name", ["partitioned:6", "partitioned:100", "prioritized_partitioned:1"])
def test_impossible_partitions_are_refused_with_those_that_are_possible(name):
    with pytest.raises(InputError, match="multiples of 4 from 4 to 96"):
        lowered(INDEPENDENT, name)


def test_copy_engines_move_between_ranks():
    _, tasks = sides(lowered(INDEPENDENT, "ce"))
    moves = [task for task in tasks if task.engine is Engine.COPY_ENGINE and task.op.nbytes]
    assert len(moves) == 3
    assert len({task.lane for task in moves}) == 3
    _, (library,) = sides(lowered(INDEPENDENT, "nccl_zero"))
    assert library.op == GATHER
    assert library.engine is Engine.COPY_ENGINE


def test_only_a_memory_bound_gemm_is_trimmed():
    (compute,), _ = sides(lowered(INDEPENDENT, "ce_trimmed"))
    assert compute.sms is None
    thin = Pair(compute=Gemm(m=16, n=1280, k=1024), communication=GATHER)
    (compute,), _ = sides(lowered(thin, "ce_trimmed"))
    assert compute.sms == 92


def test_chunks_cover_the_rows_and_the_bytes_and_follow_their_producer():
    plan = lowered(FEEDS, "chunked:4")
    computes, transfers = sides(plan)
    assert [task.op.m for task in computes] == [256, 384, 256, 384]
    assert sum(task.op.nbytes for task in transfers) == OFFLOAD.nbytes
    for compute, transfer in zip(computes, transfers, strict=True):
        assert [one.task for one in transfer.after] == [compute.id]


def test_chunks_of_what_feeds_a_gemm_come_before_it():
    computes, transfers = sides(lowered(FED, "chunked:4"))
    for compute, transfer in zip(computes, transfers, strict=True):
        assert [one.task for one in compute.after] == [transfer.id]


def test_fused_is_one_kernel_whose_parts_release_transfers():
    (compute,), transfers = sides(lowered(FEEDS, "fused:8"))
    assert len(compute.parts) == len(transfers) == 8
    assert compute.parts[-1].stop == 1280 * 1280 * 2
    for index, transfer in enumerate(transfers):
        assert [(one.task, one.part) for one in transfer.after] == [(compute.id, index)]


def test_a_fused_consumer_waits_in_its_middle():
    (compute,), transfers = sides(lowered(FED, "fused:8"))
    assert [(one.task, one.needed_by) for one in compute.after] == [
        (transfer.id, index) for index, transfer in enumerate(transfers)
    ]


@pytest.mark.parametrize("name", ["chunked", "fused"])
def test_independent_sides_are_not_chunked(name):
    with pytest.raises(InputError, match="independent"):
        lowered(INDEPENDENT, name)


def test_more_ranks_than_gpus_are_refused():
    with pytest.raises(InputError, match="--gpus 4"):
        lower(
            INDEPENDENT, strategy("baseline"), system=System(device=device(), gpus=2), kernels_of=tiled_gemms
        )


def test_a_host_copy_alone_goes_by_copy_engine_and_a_local_one_by_sms():
    local = Copy(nbytes=1 << 20)
    assert isolated(OFFLOAD, side=Side.COMMUNICATION, system=SYSTEM).tasks[0].engine is Engine.COPY_ENGINE
    assert isolated(local, side=Side.COMMUNICATION, system=SYSTEM).tasks[0].engine is Engine.SM


def fused_pair(kind: CollectiveKind, dependence: Dependence, ranks: int = 4) -> Pair:
    gemm = Gemm(m=512, n=256, k=64)
    op = Collective(kind=kind, nbytes=512 * 256 * 2, ranks=ranks)
    return Pair(compute=gemm, communication=op, dependence=dependence)


@pytest.mark.parametrize("kind", [CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL])
@pytest.mark.parametrize("topology", [Topology.SWITCH, Topology.RING])
def test_a_fused_producer_makes_each_ranks_blocks_in_the_order_in_which_they_leave(kind, topology):
    pair = fused_pair(kind, Dependence.COMPUTE_FEEDS_COMMUNICATION)
    system = System(device=device(peer_topology=topology), gpus=4)
    plan = lower(pair, strategy("fused:16"), system=system, kernels_of=tiled_gemms)
    plan.require_whole()
    block = 512 * 256 * 2 // 4
    for rank in range(4):
        (compute,), _ = sides(plan, rank)
        covered = sorted((part.start, part.stop) for part in compute.parts)
        assert covered[0][0] == 0
        assert covered[-1][1] == 4 * block
        assert all(a[1] == b[0] for a, b in itertools.pairwise(covered))
        blocks = [part.start // block for part in compute.parts]
        assert blocks[-1] == rank  # its own stays, so it is made last
        assert blocks[0] in {(rank + 1) % 4, (rank - 1) % 4}


def test_a_fused_transfer_waits_for_the_tiles_that_it_moves_and_no_others():
    pair = fused_pair(CollectiveKind.ALL_TO_ALL, Dependence.COMPUTE_FEEDS_COMMUNICATION)
    plan = lower(pair, strategy("fused:4"), system=SYSTEM, kernels_of=tiled_gemms)
    (compute,), transfers = sides(plan)
    for task in transfers:
        if isinstance(task.op, Move) and task.op.source.rank == 0:
            parts = [one.part for one in task.after if one.task == compute.id]
            assert parts
            for part in parts:
                owned = compute.parts[part]
                assert owned.start <= task.op.source.offset < owned.stop


def test_a_fused_consumer_begins_with_what_it_has_and_waits_for_what_arrives():
    pair = fused_pair(CollectiveKind.ALL_GATHER, Dependence.COMMUNICATION_FEEDS_COMPUTE)
    plan = lower(pair, strategy("fused:4"), system=SYSTEM, kernels_of=tiled_gemms)
    (compute,), _ = sides(plan, 2)
    assert [part.start * 4 // (512 * 256 * 2) for part in compute.parts] == [2, 1, 0, 3]
    assert {one.needed_by for one in compute.after} == {1, 2, 3}


def test_engines_that_can_add_do_the_reductions():
    pair = fused_pair(CollectiveKind.REDUCE_SCATTER, Dependence.COMPUTE_FEEDS_COMMUNICATION)
    able = device(copy_engines=CopyEngines(count=4, bandwidth=100e9, launch_ns=0, can_reduce=True))
    for on, engine in ((device(), Engine.SM), (able, Engine.COPY_ENGINE)):
        plan = lower(pair, strategy("fused:4"), system=System(device=on, gpus=4), kernels_of=tiled_gemms)
        assert {task.engine for task in plan.tasks if isinstance(task.op, Reduce)} == {engine}


def test_what_does_not_fit_together_is_not_fused():
    pair = fused_pair(CollectiveKind.REDUCE_SCATTER, Dependence.COMPUTE_FEEDS_COMMUNICATION)
    other = dataclasses.replace(pair, compute=Gemm(m=512, n=128, k=64))
    with pytest.raises(InputError, match="exactly what it writes"):
        lower(other, strategy("fused:4"), system=SYSTEM, kernels_of=tiled_gemms)
