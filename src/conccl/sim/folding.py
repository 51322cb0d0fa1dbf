"""Ranks that all do the same, simulated as one.

A plan is symmetric where every rank's tasks are those of rank 0 after renumbering the ranks seen from it: by
rotation (within nodes and over nodes) or by exclusive or, as recursive doubling has it. Then all ranks live
through the same times, and one of them, whose links carry what its peers' would, stands for all.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from conccl.core.hardware import System
from conccl.core.ops import Op, Region
from conccl.core.plan import Plan, Task

Distance = Callable[[int, int], int]
"""(from, to) -> the number that ``to`` has seen from ``from``."""


class Folding(enum.StrEnum):
    """Whether one rank may stand for others."""

    WHERE_ALIKE = "where_alike"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """The tasks to simulate, and which of them stands for each task of the plan."""

    plan: Plan
    tasks: tuple[int, ...]
    """Indices of the tasks to simulate, in issue order."""
    stand_in: tuple[int, ...]
    """Index of a task of the plan -> place in ``tasks``."""
    distance: Distance | None
    """How ranks are seen from each other where one stands for all; None where nothing is folded."""
    first: int = 0
    """The rank that stands for all where ranks are folded."""

    def image(self, rank: int, /) -> int:
        """The rank that stands for this one."""
        return rank if self.distance is None else self.first


def fold(plan: Plan, /, *, system: System, folding: Folding) -> Folded:
    """The plan with its ranks folded into the first, where all of them do the same."""
    ranks = plan.ranks
    if folding is Folding.WHERE_ALIKE and len(ranks) > 1 and len(ranks) == system.gpus:
        by_rank: dict[int, list[int]] = {rank: [] for rank in ranks}
        for index, task in enumerate(plan.tasks):
            by_rank[task.rank].append(index)
        lengths = {len(indices) for indices in by_rank.values()}
        for distance in _distances(system) if len(lengths) == 1 else ():
            if _alike(plan, by_rank, distance):
                return _folded(plan, by_rank, distance)
    everything = tuple(range(len(plan.tasks)))
    return Folded(plan=plan, tasks=everything, stand_in=everything, distance=None)


def _distances(system: System) -> Iterator[Distance]:
    size, nodes = min(system.gpus, system.gpus_per_node), system.nodes

    def rotated(origin: int, other: int) -> int:
        node = (other // size - origin // size) % nodes
        return node * size + (other - origin) % size

    yield rotated
    if system.gpus & (system.gpus - 1) == 0 and size & (size - 1) == 0:
        yield lambda origin, other: origin ^ other


def _alike(plan: Plan, by_rank: dict[int, list[int]], distance: Distance) -> bool:
    place = {index: place for indices in by_rank.values() for place, index in enumerate(indices)}
    index_of = {task.id: index for index, task in enumerate(plan.tasks)}
    first, *others = plan.ranks
    wanted = [_seen(plan.tasks[index], plan, index_of, place, distance) for index in by_rank[first]]
    for rank in others:
        for index, want in zip(by_rank[rank], wanted, strict=True):
            if _seen(plan.tasks[index], plan, index_of, place, distance) != want:
                return False
    return True


def _seen(
    task: Task, plan: Plan, index_of: dict[str, int], place: dict[int, int], distance: Distance
) -> tuple[object, ...]:
    """What a task is, seen from its own rank, as far as time depends on it."""
    after = []
    for dependency in task.after:
        index = index_of[dependency.task]
        rank = plan.tasks[index].rank
        after.append((place[index], distance(task.rank, rank), dependency.part, dependency.needed_by))
    return (
        _op_seen(task.op, task.rank, distance),
        task.lane,
        task.side,
        task.engine,
        task.launch,
        task.priority,
        task.sms,
        task.ctas_per_sm,
        task.partition,
        len(task.parts),
        tuple(part.stop - part.start for part in task.parts),
        tuple(sorted(after, key=repr)),
    )


def _op_seen(op: Op, rank: int, distance: Distance) -> object:
    """The op with regions by length and place of their rank: offsets and names make no difference in time."""
    seen: list[object] = [type(op).__name__]
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if isinstance(value, Region):
            seen.append((value.nbytes, distance(rank, value.rank)))
        elif isinstance(value, tuple) and value and isinstance(value[0], Region):
            seen.append(tuple((region.nbytes, distance(rank, region.rank)) for region in value))
        else:
            seen.append(value)
    return tuple(seen)


def _folded(plan: Plan, by_rank: dict[int, list[int]], distance: Distance) -> Folded:
    stand_in = [0] * len(plan.tasks)
    for indices in by_rank.values():
        for place, index in enumerate(indices):
            stand_in[index] = place
    return Folded(
        plan=plan,
        tasks=tuple(by_rank[plan.ranks[0]]),
        stand_in=tuple(stand_in),
        distance=distance,
        first=plan.ranks[0],
    )
