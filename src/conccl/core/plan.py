"""What runs where and after what, as data.

A plan is a graph of tasks. A task runs one op on one lane (stream) of one rank, by the SMs or a copy engine,
and waits for parts of other tasks. A part is one of the pieces that a task's output becomes ready in; parts
complete in the order in which they are listed. Serial, prioritized, partitioned, copy-engine, chunked and
fused execution (tracking and triggering, T3) differ in these values and in nothing else.

Tasks of one lane run in the order in which the plan lists them, as on a CUDA stream.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from conccl.core.errors import PlanError
from conccl.core.ops import Op


class Engine(enum.StrEnum):
    """What moves or computes."""

    SM = "sm"
    COPY_ENGINE = "ce"


class Side(enum.StrEnum):
    """What a task's time counts as."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """Start only when this part of that task is complete."""

    task: str
    part: int | None = None
    """None: the whole task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Bytes [start, stop) of a task's output, complete together."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise PlanError(
                f"a part owns bytes [{self.start}, {self.stop}): both must be 0 or more, and in order."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One op on one lane of one rank."""

    id: str
    op: Op
    rank: int = 0
    lane: str = "compute"
    side: Side = Side.COMPUTE
    engine: Engine = Engine.SM
    priority: int = 0
    """As CUDA has it: lower runs first among pending CTAs; 0 is the default."""
    sms: int | None = None
    """Most SMs that the task may occupy; None: as many as it has CTAs for."""
    ctas_per_sm: int | None = None
    """Most of its CTAs on one SM; None: as many as fit. 1 keeps a communication kernel from being packed."""
    partition: str | None = None
    """Tasks that name a partition run on its SMs alone (`Plan.partitions`); None: on all SMs."""
    after: tuple[Dependency, ...] = ()
    parts: tuple[Part, ...] = ()
    """The pieces of the output in order of completion; empty: one, the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Tasks of all ranks, in issue order."""

    tasks: tuple[Task, ...]
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Disjoint groups of SMs on every rank, by name: how many each holds."""
    label: str = ""

    def __post_init__(self) -> None:
        counts = Counter(task.id for task in self.tasks)
        double = [id_ for id_, count in counts.items() if count > 1]
        if double:
            raise PlanError(
                f"task {double[0]!r} stands {counts[double[0]]} times in the plan; an id names one task."
            )
        _check_references(self)
        _check_acyclic(self)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have tasks, in order."""
        return tuple(sorted({task.rank for task in self.tasks}))

    def task(self, id_: str, /) -> Task:
        """The task with this id."""
        for task in self.tasks:
            if task.id == id_:
                return task
        raise PlanError(f"no task {id_!r} in the plan.")

    def for_rank(self, rank: int, /) -> tuple[Task, ...]:
        """What one process runs, in its issue order; its dependencies may name other ranks' tasks."""
        return tuple(task for task in self.tasks if task.rank == rank)


def merged(plans: Iterable[Plan], /) -> Plan:
    """Several fragments as one plan: their tasks in the order given, their partitions together."""
    tasks: list[Task] = []
    partitions: dict[str, int] = {}
    labels: list[str] = []
    for plan in plans:
        tasks.extend(plan.tasks)
        partitions.update(plan.partitions)
        if plan.label:
            labels.append(plan.label)
    return Plan(tasks=tuple(tasks), partitions=partitions, label=" + ".join(labels))


def _check_references(plan: Plan) -> None:
    parts = {task.id: len(task.parts) for task in plan.tasks}
    for task in plan.tasks:
        if task.partition is not None and task.partition not in plan.partitions:
            raise PlanError(
                f"task {task.id!r} runs in partition {task.partition!r}, which the plan does not have."
            )
        for dependency in task.after:
            if dependency.task not in parts:
                raise PlanError(f"task {task.id!r} waits for {dependency.task!r}, which is not in the plan.")
            count = max(1, parts[dependency.task])
            if dependency.part is not None and not 0 <= dependency.part < count:
                raise PlanError(
                    f"task {task.id!r} waits for part {dependency.part} of {dependency.task!r},"
                    f" which has {count}."
                )


def _check_acyclic(plan: Plan) -> None:
    """Kahn's algorithm over dependencies and lane order; what is left over waits for itself."""
    waits: dict[str, int] = {task.id: 0 for task in plan.tasks}
    followers: dict[str, list[str]] = {task.id: [] for task in plan.tasks}
    last_on_lane: dict[tuple[int, str], str] = {}
    for task in plan.tasks:
        before = {dependency.task for dependency in task.after}
        lane = (task.rank, task.lane)
        if lane in last_on_lane:
            before.add(last_on_lane[lane])
        last_on_lane[lane] = task.id
        waits[task.id] = len(before)
        for other in before:
            followers[other].append(task.id)
    ready = [id_ for id_, count in waits.items() if count == 0]
    done = 0
    while ready:
        done += 1
        for follower in followers[ready.pop()]:
            waits[follower] -= 1
            if waits[follower] == 0:
                ready.append(follower)
    if done < len(waits):
        stuck = [id_ for id_, count in waits.items() if count > 0][:5]
        raise PlanError(
            f"the plan waits for itself: {', '.join(stuck)} can never start (dependencies and lane order)."
        )
