"""What runs where and after what, as data.

A plan is a graph of tasks. A task runs one op on one lane (stream) of one rank, by the SMs or a copy engine,
and waits for parts of other tasks. A part is one of the pieces that a task's output becomes ready in; parts
begin and complete in the order in which they are listed, and each of them may have something to wait for.
Serial, prioritized, partitioned, copy-engine, chunked and fused execution (tracking and triggering, T3)
differ in these values and in nothing else.

Tasks of one lane run in the order in which the plan lists them, as on a CUDA stream. A rank has as many
lanes as it needs: a collective that uses several copy engines has a lane for each. A dependency between
ranks is a flag that the one sets and the other waits for.

A fragment is a plan whose tasks also wait for tasks that it does not have (`Plan.needs`); `merged` puts it
together with the plan that has them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from conccl.core.errors import PlanError
from conccl.core.ops import Memory, Op


class Engine(enum.StrEnum):
    """What moves or computes."""

    SM = "sm"
    COPY_ENGINE = "ce"


class Side(enum.StrEnum):
    """What a task's time counts as."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"


class Launch(enum.StrEnum):
    """When a task is put into its lane's queue."""

    HOST = "host"
    """When its turn comes: the host's launch cost stands before it."""
    PRELAUNCHED = "prelaunched"
    """Before: it lies in the queue behind a wait for what it depends on, and starts without the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """Begin only when this part of that task is complete."""

    task: str
    part: int | None = None
    """None: the whole task."""
    needed_by: int | None = None
    """The part of the waiting task that may not begin before; the parts before it may. None: none may.

    A task that waits in its middle keeps what it holds: an SM kernel its SMs, its lane's next task its turn.
    """


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
class Buffer:
    """Memory of one rank that regions of tasks name: what must be allocated (and registered) before a run."""

    rank: int
    name: str
    nbytes: int
    memory: Memory = Memory.DEVICE
    """Where it lies, seen from its rank; a host buffer is one that other ranks can reach too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One op on one lane of one rank."""

    id: str
    op: Op
    rank: int = 0
    lane: str = "compute"
    side: Side = Side.COMPUTE
    engine: Engine = Engine.SM
    launch: Launch = Launch.HOST
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
class Steps:
    """The parts of all tasks as one graph: what executors, interpreters and checkers walk.

    A step is one part of a task, or all of a task without parts. Steps are numbered task by task in issue
    order, so those of one task are consecutive.
    """

    task: Sequence[int]
    """Step -> index of its task in `Plan.tasks`."""
    first: Sequence[int]
    """Index of a task -> its first step; one entry more than tasks, the number of steps."""
    before: Sequence[Sequence[int]]
    """Step -> the steps that must be complete before it begins, by dependency, part order or lane order."""
    order: Sequence[int]
    """All steps, each after those before it; always the same for the same plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Tasks of all ranks, in issue order."""

    tasks: tuple[Task, ...]
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Disjoint groups of SMs on every rank, by name: how many each holds."""
    buffers: tuple[Buffer, ...] = ()
    needs: tuple[str, ...] = ()
    """Ids of tasks that this fragment waits for and does not have; a plan that runs needs none."""
    label: str = ""
    _index: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {task.id: position for position, task in enumerate(self.tasks)}
        if len(index) < len(self.tasks):
            raise PlanError(f"task {_double(self.tasks)!r} stands in the plan twice; an id names one task.")
        object.__setattr__(self, "_index", index)
        _check_references(self, index)
        self.steps()

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have tasks, in order."""
        return tuple(sorted({task.rank for task in self.tasks}))

    def task(self, id_: str, /) -> Task:
        """The task with this id."""
        if id_ not in self._index:
            raise PlanError(f"no task {id_!r} in the plan.")
        return self.tasks[self._index[id_]]

    def for_rank(self, rank: int, /) -> tuple[Task, ...]:
        """What one process runs, in its issue order; its dependencies may name other ranks' tasks."""
        return tuple(task for task in self.tasks if task.rank == rank)

    def steps(self) -> Steps:
        """The parts of all tasks as one graph, made anew (linear in parts and dependencies) at each call."""
        return _steps(self.tasks, self._index)

    def require_whole(self) -> None:
        """Refuse a fragment: executors call it before they run a plan."""
        if self.needs:
            raise PlanError(
                f"the plan waits for {self.needs[0]!r}, which it does not have."
                " Merge it with the plan that has this task (conccl.core.plan.merged)."
            )


def merged(plans: Iterable[Plan], /) -> Plan:
    """Several fragments as one plan: their tasks in the order given, their partitions and buffers together.

    What one of them needs and another has is needed no more.
    """
    tasks: list[Task] = []
    partitions: dict[str, int] = {}
    buffers: dict[tuple[int, str], Buffer] = {}
    needs: dict[str, None] = {}
    labels: list[str] = []
    for plan in plans:
        tasks.extend(plan.tasks)
        partitions.update(plan.partitions)
        needs.update(dict.fromkeys(plan.needs))
        for buffer in plan.buffers:
            known = buffers.setdefault((buffer.rank, buffer.name), buffer)
            buffers[buffer.rank, buffer.name] = _larger(known, buffer)
        if plan.label:
            labels.append(plan.label)
    for task in tasks:
        needs.pop(task.id, None)
    return Plan(
        tasks=tuple(tasks),
        partitions=partitions,
        buffers=tuple(buffers.values()),
        needs=tuple(needs),
        label=" + ".join(labels),
    )


def _larger(one: Buffer, other: Buffer) -> Buffer:
    """The buffer that serves both; fragments that run one after the other may share staging."""
    if one.memory is not other.memory:
        raise PlanError(
            f"buffer {one.name!r} of rank {one.rank} lies in {one.memory} and in {other.memory} memory;"
            " give the two different names."
        )
    return max(one, other, key=lambda buffer: buffer.nbytes)


def _double(tasks: Iterable[Task]) -> str:
    seen: set[str] = set()
    return next(task.id for task in tasks if task.id in seen or seen.add(task.id))  # type: ignore[func-returns-value]


def _check_references(plan: Plan, index: Mapping[str, int]) -> None:
    tasks, needs = plan.tasks, frozenset(plan.needs)
    if needs & index.keys():
        raise PlanError(f"the plan has task {min(needs & index.keys())!r} and says that it needs it.")
    for task in tasks:
        if task.partition is not None and task.partition not in plan.partitions:
            raise PlanError(
                f"task {task.id!r} runs in partition {task.partition!r}, which the plan does not have."
            )
        for dependency in task.after:
            if dependency.needed_by is not None:
                _check_part(task, dependency.needed_by, f"task {task.id!r} waits before its part")
            position = index.get(dependency.task)
            if position is None:
                if dependency.task not in needs:
                    raise PlanError(
                        f"task {task.id!r} waits for {dependency.task!r}, which is not in the plan."
                    )
            elif dependency.part is not None:
                _check_part(tasks[position], dependency.part, f"task {task.id!r} waits for part")


def _check_part(task: Task, part: int, sentence: str) -> None:
    count = len(task.parts) or 1
    if not 0 <= part < count:
        raise PlanError(f"{sentence} {part} of {task.id!r}, which has {count} (counted from 0).")


def _steps(tasks: Sequence[Task], index: Mapping[str, int]) -> Steps:
    task_of: list[int] = []
    first: list[int] = []
    before: list[list[int]] = []
    for position, task in enumerate(tasks):
        step = len(before)
        first.append(step)
        before.append([])
        task_of.append(position)
        for _ in task.parts[1:]:
            before.append([step])
            task_of.append(position)
            step += 1
    first.append(len(before))
    last_on_lane: dict[tuple[int, str], int] = {}
    for position, task in enumerate(tasks):
        begin = first[position]
        lane = (task.rank, task.lane)
        if lane in last_on_lane:
            before[begin].append(last_on_lane[lane])
        last_on_lane[lane] = first[position + 1] - 1
        for dependency in task.after:
            other = index.get(dependency.task)
            if other is not None:  # else a fragment's need: complete before the fragment begins
                part = dependency.part
                awaited = first[other + 1] - 1 if part is None else first[other] + part
                before[begin + (dependency.needed_by or 0)].append(awaited)
    return Steps(task=task_of, first=first, before=before, order=_order(tasks, task_of, before))


def _order(tasks: Sequence[Task], task_of: Sequence[int], before: Sequence[Sequence[int]]) -> list[int]:
    """Kahn's algorithm; what is left over waits for itself."""
    waits = [len(awaited) for awaited in before]
    followers: list[list[int]] = [[] for _ in before]
    for step, awaited in enumerate(before):
        for other in awaited:
            followers[other].append(step)
    order = [step for step, count in enumerate(waits) if count == 0]
    for step in order:  # grows while it is walked
        for follower in followers[step]:
            waits[follower] -= 1
            if waits[follower] == 0:
                order.append(follower)
    if len(order) < len(before):
        cycle = _cycle(before, waits)
        names = list(dict.fromkeys(tasks[task_of[step]].id for step in cycle))
        raise PlanError(
            f"the plan waits for itself: {' waits for '.join([*names, names[0]])}"
            " (dependencies, and the order of tasks on a lane)."
        )
    return order


def _cycle(before: Sequence[Sequence[int]], waits: Sequence[int]) -> list[int]:
    """Steps that wait for each other in a ring: a stuck step always waits for another stuck one."""
    path: dict[int, int] = {}
    step = next(step for step, count in enumerate(waits) if count > 0)
    while step not in path:
        path[step] = len(path)
        step = next(other for other in before[step] if waits[other] > 0)
    return list(path)[path[step] :]
