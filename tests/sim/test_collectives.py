"""Collectives as library calls: alone as their cost model says, beside computation as their CTAs get SMs."""

import pytest

from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective
from conccl.core.plan import Engine, Plan, Side, Task
from conccl.costs.catalogue import load_device, system_of
from conccl.costs.collective import collective_cost
from conccl.sim.executor import SimExecutor, Skew
from made_kernels import Simulated, kernel, task

KINDS = (
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.BROADCAST,
)


def alone_ns(op: Collective, device: str, **fields) -> int:
    system = system_of(load_device(device), gpus=max(op.ranks, 1))
    call = Task(id="c", op=op, side=Side.COMMUNICATION, **fields)
    return SimExecutor(system=system).run(Plan(tasks=(call,))).span_ns


@pytest.mark.parametrize("device", ["h200-sxm", "mi300x", "a100-sxm", "t3-80cu"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ranks", "nbytes"), [(2, 1 << 20), (8, 1 << 26), (8, 1 << 30), (32, 1 << 30)])
def test_alone_a_collective_takes_what_its_cost_model_says(device, kind, ranks, nbytes):
    op = Collective(kind=kind, nbytes=nbytes, ranks=ranks)
    cost = collective_cost(op, load_device(device))
    assert alone_ns(op, device) == pytest.approx(cost.time_ns, rel=0.03)


def test_one_rank_has_nothing_to_exchange():
    assert alone_ns(Collective(kind=CollectiveKind.ALL_REDUCE, nbytes=1 << 30, ranks=1), "h200-sxm") == 0


def test_a_barrier_moves_nothing_and_takes_its_time():
    op = Collective(kind=CollectiveKind.BARRIER, nbytes=0, ranks=8)
    assert alone_ns(op, "h200-sxm") == collective_cost(op, load_device("h200-sxm")).time_ns


def test_fewer_sms_than_it_needs_slow_a_collective_down():
    op = Collective(kind=CollectiveKind.ALL_GATHER, nbytes=1 << 30, ranks=8)
    needed = collective_cost(op, load_device("h200-sxm")).ctas
    full = alone_ns(op, "h200-sxm", sms=needed, ctas_per_sm=1)
    half = alone_ns(op, "h200-sxm", sms=needed // 2, ctas_per_sm=1)
    assert half == pytest.approx(2 * full, rel=0.02)
    assert alone_ns(op, "h200-sxm", sms=2 * needed, ctas_per_sm=1) == pytest.approx(full, rel=0.02)


def test_copy_engines_leave_the_sms_alone():
    op = Collective(kind=CollectiveKind.ALL_GATHER, nbytes=1 << 30, ranks=8)
    assert alone_ns(op, "h200-sxm", engine=Engine.COPY_ENGINE) == pytest.approx(
        alone_ns(op, "h200-sxm"), rel=0.2
    )


def test_ranks_hold_their_sms_while_they_wait_for_the_last():
    op = Collective(kind=CollectiveKind.ALL_GATHER, nbytes=4_000, ranks=2)
    calls = [
        task(f"c{rank}", op=op, rank=rank, lane="comm", side=Side.COMMUNICATION, ctas_per_sm=1)
        for rank in range(2)
    ]
    gemms = [task(f"g{rank}", "g", rank=rank, lane="compute") for rank in range(2)]
    run = Simulated({"g": kernel(ctas=100, least_ns=1_000)}, gpus=2, skew=Skew(delays_ns={1: 5_000}))
    rows = run(*calls, *gemms)
    assert rows["c0"].start_ns == 0
    assert rows["c0"].end_ns == rows["c1"].end_ns > 5_000
    assert rows["g0"].end_ns == 2_000  # the call holds ten SMs from the start: ten CTAs need a second wave
