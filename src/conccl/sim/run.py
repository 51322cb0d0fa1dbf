"""One simulation of one plan: clock, network and GPUs, and the tasks that go through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conccl.core.errors import PlanError
from conccl.core.hardware import MemoryArbitration, System
from conccl.core.ops import Collective
from conccl.core.plan import Launch, Side, Task
from conccl.sim.copying import CopyQueue
from conccl.sim.engine import Engine
from conccl.sim.fabric import Fabric
from conccl.sim.flow import Network
from conccl.sim.folding import Folded
from conccl.sim.sms import Sms
from conccl.sim.task_run import Place, Rendezvous, TaskRun
from conccl.sim.work import CollectiveCostOf, KernelsOf, Worker

COMPUTE_FIRST_WEIGHT = 0.02
"""What communication still gets of a short memory, beside what it asks for, where compute is served first:
T3's arbiter lets it through after a limit on starvation (arXiv:2401.16677)."""


def run(
    folded: Folded,
    /,
    *,
    system: System,
    kernels_of: KernelsOf,
    collective_cost: CollectiveCostOf,
    host_issues: bool,
    speeds: Mapping[int, float],
    delays_ns: Mapping[int, int],
) -> list[tuple[int, int]]:
    """When each task to simulate starts and ends."""
    engine = Engine()
    tasks = [folded.plan.tasks[index] for index in folded.tasks]
    fabric = Fabric(
        system=system,
        image=folded.image,
        distance=folded.distance or (lambda _, destination: destination),
    )
    places = _places(tasks, folded=folded, system=system, engine=engine, fabric=fabric, speeds=speeds)
    worker = Worker(system=system, fabric=fabric, kernels_of=kernels_of, collective_cost=collective_cost)
    runs = [
        TaskRun(task, stages=worker.stages(task), place=places[task.rank], weight=_weight(task, system))
        for task in tasks
    ]
    _join(runs, folded=folded, fabric=fabric)
    _join_collectives(runs)
    issued_ns = dict(delays_ns)
    for one in runs:
        rank = one.task.rank
        if host_issues and one.task.launch is Launch.HOST:
            issued_ns[rank] = issued_ns.get(rank, 0) + system.device.host_launch_ns
        one.issue(at_ns=issued_ns.get(rank, 0))
    engine.run()
    _require_ended(runs)
    return [one.times() for one in runs]


def _require_ended(runs: Sequence[TaskRun]) -> None:
    """Refuse a plan whose tasks hold what others of them wait for: on a GPU it would hang."""
    stuck = [one.task.id for one in runs if not one.has_ended]
    if stuck:
        raise PlanError(
            f"the plan stops with {', '.join(map(repr, stuck[:3]))} unfinished: tasks wait for SMs that"
            " others keep while these wait for them. Give the communication to copy engines, or fewer SMs."
        )


def _places(
    tasks: Sequence[Task],
    *,
    folded: Folded,
    system: System,
    engine: Engine,
    fabric: Fabric,
    speeds: Mapping[int, float],
) -> dict[int, Place]:
    """What carries out each rank's tasks."""
    network = Network(engine=engine)
    device = system.device
    places = {}
    for rank in dict.fromkeys(task.rank for task in tasks):
        sms = Sms(
            engine=engine,
            network=network,
            device=device,
            partitions=dict(folded.plan.partitions),
            hbm=fabric.hbm(rank),
            l2=fabric.l2(rank),
            speed=speeds.get(rank, 1.0),
        )
        copies = CopyQueue(engine=engine, network=network, engines=device.copy_engines)
        places[rank] = Place(engine=engine, sms=sms, copies=copies, launch_ns=device.kernel_launch_ns)
    return places


def _weight(task: Task, system: System) -> float:
    """How much of a short memory a task gets beside what it asks for."""
    compute_first = system.device.memory_arbitration is MemoryArbitration.COMPUTE_FIRST
    return COMPUTE_FIRST_WEIGHT if compute_first and task.side is Side.COMMUNICATION else 1.0


def _join(runs: Sequence[TaskRun], *, folded: Folded, fabric: Fabric) -> None:
    """Have tasks wait for what the plan says and for those before them on their lane."""
    plan = folded.plan
    index_of = {task.id: index for index, task in enumerate(plan.tasks)}
    last_on_lane: dict[tuple[int, str], TaskRun] = {}
    for one in runs:
        task = one.task
        lane = (task.rank, task.lane)
        if lane in last_on_lane:
            last_on_lane[lane].lets_go(one)
        last_on_lane[lane] = one
        for dependency in task.after:
            index = index_of[dependency.task]
            runs[folded.stand_in[index]].lets_go(
                one,
                part=dependency.part,
                needed_by=dependency.needed_by or 0,
                latency_ns=fabric.latency_ns(plan.tasks[index].rank, task.rank),
            )


def _join_collectives(runs: Sequence[TaskRun]) -> None:
    """A collective's kernels wait for each other: the n-th on a lane is the same call on every rank."""
    calls: dict[tuple[str, int], list[TaskRun]] = {}
    counts: dict[tuple[int, str], int] = {}
    for one in runs:
        if isinstance(one.task.op, Collective):
            lane = (one.task.rank, one.task.lane)
            counts[lane] = counts.get(lane, 0) + 1
            calls.setdefault((one.task.lane, counts[lane]), []).append(one)
    for members in calls.values():
        if len(members) > 1:
            Rendezvous(members)
