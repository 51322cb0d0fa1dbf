"""The simulated executor: plan in, timeline out."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from conccl.core.errors import InputError, PlanError
from conccl.core.hardware import System
from conccl.core.plan import Plan, Side, Task
from conccl.core.timeline import Activity, Clock, Lane, Span, Timeline, timeline_of
from conccl.costs.collective import collective_cost
from conccl.costs.kernels import kernels_of
from conccl.sim.fabric import Fabric
from conccl.sim.folding import Folding, fold
from conccl.sim.run import run
from conccl.sim.work import CollectiveCostOf, KernelsOf, Worker


class Issue(enum.StrEnum):
    """How tasks reach the GPU."""

    GRAPH = "graph"
    """All at once, as a CUDA graph's: the host costs nothing."""
    EAGER = "eager"
    """One after the other, in the plan's order, each at the host's cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """How ranks differ from each other; a rank that is not named is as fast as the device says."""

    speeds: Mapping[int, float] = field(default_factory=dict)
    """Rank -> speed of its SMs, 1 being the device's."""
    delays_ns: Mapping[int, int] = field(default_factory=dict)
    """Rank -> how much later than the others it starts."""

    def __post_init__(self) -> None:
        for rank, speed in self.speeds.items():
            if not speed > 0:
                raise InputError(
                    f"the speed of rank {rank} is {speed}; it must be above 0 (1: as the device)."
                )
        for rank, delay_ns in self.delays_ns.items():
            if delay_ns < 0:
                raise InputError(f"the delay of rank {rank} is {delay_ns} ns; it must not be negative.")


class SimExecutor:
    """Simulates plans on a system of GPUs; nothing in it depends on the clock on the wall.

    ``kernels_of`` and ``collective_cost`` say what ops cost alone; the cost models unless given.
    """

    def __init__(
        self,
        *,
        system: System,
        kernels_of: KernelsOf = kernels_of,
        collective_cost: CollectiveCostOf = collective_cost,
        issue: Issue = Issue.GRAPH,
        skew: Skew | None = None,
        folding: Folding = Folding.WHERE_ALIKE,
    ) -> None:
        self._system = system
        self._kernels_of = kernels_of
        self._collective_cost = collective_cost
        self._issue = issue
        self._skew = skew or Skew()
        self._folding = folding

    def run(self, plan: Plan, /) -> Timeline:
        """Carry out the plan; one row a task, named by its id, times from the start of the first rank."""
        plan.require_whole()
        _check_ranks(plan, self._system)
        _check_partitions(plan, self._system)
        alike = not (self._skew.speeds or self._skew.delays_ns)
        folded = fold(plan, system=self._system, folding=self._folding if alike else Folding.NEVER)
        times = run(
            folded,
            system=self._system,
            kernels_of=self._kernels_of,
            collective_cost=self._collective_cost,
            host_issues=self._issue is Issue.EAGER,
            speeds=self._skew.speeds,
            delays_ns=self._skew.delays_ns,
        )
        spans = (
            _span(task, device=self._system.device.name, times=times[stand_in])
            for task, stand_in in zip(plan.tasks, folded.stand_in, strict=True)
        )
        return timeline_of(spans, clock=Clock.SIMULATED)

    def hbm_nbytes(self, plan: Plan, /) -> float:
        """Bytes in and out of HBM on all GPUs, as the plan's tasks have them alone: T3's data movement."""
        fabric = Fabric(system=self._system, image=lambda rank: rank, distance=lambda _, other: other)
        worker = Worker(
            system=self._system,
            fabric=fabric,
            kernels_of=self._kernels_of,
            collective_cost=self._collective_cost,
        )
        return sum(worker.hbm_nbytes(task) for task in plan.tasks)


def _span(task: Task, *, device: str, times: tuple[int, int]) -> Span:
    activity = Activity.COMPUTE if task.side is Side.COMPUTE else Activity.COMMUNICATION
    lane = Lane(rank=task.rank, device=device, stream=task.lane)
    return Span(name=task.id, lane=lane, activity=activity, start_ns=times[0], end_ns=times[1])


def _check_ranks(plan: Plan, system: System) -> None:
    beyond = [rank for rank in plan.ranks if not 0 <= rank < system.gpus]
    if beyond:
        raise PlanError(
            f"the plan has tasks of rank {beyond[0]} and the system {system.gpus} GPUs."
            f" Simulate it on {beyond[-1] + 1} or more."
        )


def _check_partitions(plan: Plan, system: System) -> None:
    device = system.device
    for name, sms in plan.partitions.items():
        if sms < 1 or sms % device.sm_group or sms > device.sm_count:
            raise PlanError(
                f"partition {name!r} of {sms} SMs: {device.name} is divided in multiples"
                f" of {device.sm_group}, from {device.sm_group} to"
                f" {device.sm_count // device.sm_group * device.sm_group}."
            )
    together = sum(plan.partitions.values())
    if together > device.sm_count:
        raise PlanError(
            f"partitions of {together} SMs together; {device.name} has {device.sm_count}. Make them smaller."
        )
