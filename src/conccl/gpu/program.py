"""A plan as what the host puts into streams: launches in an order that never waits for something later.

Every step (a part of a task, or all of one without parts) is one launch. A step waits for the events of the
steps before it that are in other streams; those of its own stream come before it anyway. Since launches are
issued in a topological order, a wait is always put in after the record that it waits for, so that streams
cannot deadlock however few hardware queues there are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from conccl.core.plan import Plan, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamKey:
    """What makes a stream: tasks of one lane that differ in the others are on several, in their order."""

    rank: int
    lane: str
    priority: int = 0
    partition: str | None = None
    """A group of the plan's partitions, or of `whole_sms` SMs where only the number is limited."""
    sms: int | None = None
    """SMs of a compute task that may not use all; None: all of its partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One step: what is launched, where, and after which other steps."""

    step: int
    task: Task
    part: int
    parts: int
    stream: StreamKey
    waits: tuple[int, ...]
    """Steps whose events must have happened, in other streams."""
    is_awaited: bool
    """Whether another stream waits for it, so that it needs an event."""

    @property
    def is_first(self) -> bool:
        """Whether the task begins with it."""
        return self.part == 0

    @property
    def is_last(self) -> bool:
        """Whether the task ends with it."""
        return self.part == self.parts - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """All launches of one process, in the order in which the host issues them."""

    launches: tuple[Launch, ...]
    partitions: dict[str, int]

    @property
    def streams(self) -> tuple[StreamKey, ...]:
        """Every stream once, in the order of first use."""
        return tuple(dict.fromkeys(launch.stream for launch in self.launches))


def program_of(plan: Plan, /, *, ranks: Collection[int] | None = None) -> Program:
    """The program of these ranks (None: all, as virtual ranks of one process).

    What other ranks do is taken to have happened: where one GPU stands for several, their flags are not
    waited for.
    """
    plan.require_whole()
    steps = plan.steps()
    mine = [ranks is None or task.rank in ranks for task in plan.tasks]
    stream_of = [_stream(task) for task in plan.tasks]
    order = [step for step in steps.order if mine[steps.task[step]]]
    waits: dict[int, tuple[int, ...]] = {}
    for step in order:
        here = stream_of[steps.task[step]]
        others = (other for other in steps.before[step] if mine[steps.task[other]])
        waits[step] = tuple(sorted({other for other in others if stream_of[steps.task[other]] != here}))
    awaited = {other for some in waits.values() for other in some}
    launches = tuple(
        Launch(
            step=step,
            task=plan.tasks[steps.task[step]],
            part=step - steps.first[steps.task[step]],
            parts=steps.first[steps.task[step] + 1] - steps.first[steps.task[step]],
            stream=stream_of[steps.task[step]],
            waits=waits[step],
            is_awaited=step in awaited,
        )
        for step in order
    )
    return Program(launches=launches, partitions=dict(plan.partitions))


def _stream(task: Task) -> StreamKey:
    from_all = task.partition is None and task.side.value == "compute"
    return StreamKey(
        rank=task.rank,
        lane=task.lane,
        priority=task.priority,
        partition=task.partition,
        sms=task.sms if from_all else None,
    )
