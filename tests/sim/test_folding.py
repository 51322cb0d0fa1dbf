"""One rank stands for all where all do the same, and gives the times that simulating all gives."""

import pytest

from conccl.core.hardware import CopyEngines, System, Topology
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Gemm
from conccl.core.pair import Pair
from conccl.core.plan import Dependency, Plan
from conccl.sim.executor import SimExecutor, Skew
from conccl.sim.folding import Folding, fold
from conccl.strategies.choices import strategy
from conccl.strategies.lower import lower
from made_kernels import device, made_collective, op, task, tiled_gemms

MESH = device(
    peer_topology=Topology.MESH,
    peer_links=7,
    copy_engines=CopyEngines(count=14, bandwidth=50e9, launch_ns=1000),
)
KINDS = (
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_REDUCE,
)


def plan_of(name: str, kind: CollectiveKind, ranks: int) -> Plan:
    pair = Pair(
        compute=Gemm(m=1920, n=1280, k=2048),
        communication=Collective(kind=kind, nbytes=ranks << 20, ranks=ranks),
    )
    return lower(pair, strategy(name), system=System(device=MESH, gpus=ranks), kernels_of=tiled_gemms)


def executor(ranks: int, folding: Folding, **options) -> SimExecutor:
    return SimExecutor(
        system=System(device=MESH, gpus=ranks),
        kernels_of=tiled_gemms,
        collective_cost=made_collective,
        folding=folding,
        **options,
    )


def rows(timeline) -> dict:
    return {span.name: (span.start_ns, span.end_ns, span.lane.rank) for span in timeline}


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["serial", "baseline", "prioritized", "partitioned", "ce", "ce_trimmed"])
def test_folded_is_unfolded(name, kind, ranks):
    plan = plan_of(name, kind, ranks)
    folded = fold(plan, system=System(device=MESH, gpus=ranks), folding=Folding.WHERE_ALIKE)
    assert len(folded.tasks) == len(plan.tasks) // ranks
    alike = rows(executor(ranks, Folding.WHERE_ALIKE).run(plan))
    every = rows(executor(ranks, Folding.NEVER).run(plan))
    assert alike.keys() == every.keys()
    for id_, (start_ns, end_ns, rank) in every.items():
        assert alike[id_][2] == rank
        assert abs(alike[id_][0] - start_ns) <= 5  # a nanosecond of rounding for each change of rates
        assert abs(alike[id_][1] - end_ns) <= 5


def test_ranks_that_differ_are_not_folded():
    system = System(device=device(), gpus=2)
    plan = Plan(tasks=(task("a", rank=0), task("b", rank=1), task("c", rank=1, lane="b")))
    assert fold(plan, system=system, folding=Folding.WHERE_ALIKE).distance is None
    plan = Plan(tasks=(task("a", rank=0), task("b", rank=1, after=["a"])))
    assert fold(plan, system=system, folding=Folding.WHERE_ALIKE).distance is None
    plan = Plan(tasks=(task("a", rank=0), task("b", rank=1, op=op("other"))))
    assert fold(plan, system=system, folding=Folding.WHERE_ALIKE).distance is None


def test_ranks_that_wait_for_their_neighbours_are_folded():
    system = System(device=device(), gpus=4)
    tasks = [task(f"a{r}", rank=r, lane="a", op=op("k")) for r in range(4)]
    tasks += [
        task(f"b{r}", rank=r, lane="b", op=op("k"), after=[Dependency(task=f"a{(r + 1) % 4}")])
        for r in range(4)
    ]
    folded = fold(Plan(tasks=tuple(tasks)), system=system, folding=Folding.WHERE_ALIKE)
    assert len(folded.tasks) == 2


def test_a_straggler_holds_up_the_others_and_only_through_the_collective():
    plan = plan_of("prioritized", CollectiveKind.ALL_GATHER, 4)
    even = rows(executor(4, Folding.WHERE_ALIKE).run(plan))
    late = executor(4, Folding.WHERE_ALIKE, skew=Skew(delays_ns={2: 50_000})).run(plan)
    late = rows(late)
    for rank in range(4):
        assert late[f"communication.r{rank}"][1] == even[f"communication.r{rank}"][1] + 50_000
    slow = rows(executor(4, Folding.NEVER, skew=Skew(speeds={1: 0.5})).run(plan))
    assert slow["compute.r1"][1] > 1.5 * even["compute.r1"][1]
    assert slow["compute.r0"][1] < 1.5 * even["compute.r0"][1]
