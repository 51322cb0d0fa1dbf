"""Which steps of a plan come before which in every legal schedule, and what is touched without an order.

Vector clocks over lanes: the steps of a lane follow each other, so how far each lane must have come before a
step begins says all. Memory is steps x lanes x 4 bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from conccl.collectives.finding import Finding, FindingKind
from conccl.core.ops import Move, Multicast, Reduce, Region, Swap
from conccl.core.plan import Plan, Steps, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Bytes [start, stop) of a buffer that a step reads or writes."""

    rank: int
    buffer: str
    start: int
    stop: int
    writes: bool


def reads_and_writes(task: Task, /) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """The regions that a task reads and those that it writes."""
    match task.op:
        case Move(source=source, destination=destination):
            return (source,), (destination,)
        case Multicast(source=source, destinations=destinations):
            return (source,), destinations
        case Swap(first=first, second=second):
            return (first, second), (first, second)
        case Reduce(sources=sources, destination=destination):
            return sources, (destination,)
        case _:
            return (), ()


def accesses(plan: Plan, steps: Steps, step: int, /) -> Iterator[Access]:
    """What a step touches, its reads first."""
    position = steps.task[step]
    task = plan.tasks[position]
    part = task.parts[step - steps.first[position]] if task.parts else None
    for writes, regions in enumerate(reads_and_writes(task)):
        for region in regions:
            start = region.offset if part is None else region.offset + part.start
            stop = region.end if part is None else region.offset + part.stop
            if stop > start:
                yield Access(
                    rank=region.rank, buffer=region.buffer, start=start, stop=stop, writes=bool(writes)
                )


class HappensBefore:
    """Answers whether a step is complete before another begins, whatever the schedule."""

    def __init__(self, plan: Plan, steps: Steps, /) -> None:
        lanes: dict[tuple[int, str], int] = {}
        self._lane = [
            lanes.setdefault((plan.tasks[position].rank, plan.tasks[position].lane), len(lanes))
            for position in steps.task
        ]
        come = [0] * len(lanes)
        self._place = []
        for lane in self._lane:
            come[lane] += 1
            self._place.append(come[lane])
        self._clock = np.zeros((len(self._lane), len(lanes)), dtype=np.int32)
        for step in steps.order:
            row = self._clock[step]
            for other in steps.before[step]:
                np.maximum(row, self._clock[other], out=row)
            row[self._lane[step]] = self._place[step]

    def __call__(self, first: int, then: int, /) -> bool:
        """Whether ``first`` is always complete before ``then`` begins (or is it)."""
        return bool(self._clock[then, self._lane[first]] >= self._place[first])


class _History:
    """The last writer of each byte of a buffer, and who has read it since."""

    def __init__(self) -> None:
        self._starts = [0]
        self._writers: list[int | None] = [None]
        self._readers: list[list[int]] = [[]]

    def read(self, access: Access, step: int) -> set[int]:
        """The writers that the step must come after."""
        span = self._span(access)
        for index in span:
            self._readers[index].append(step)
        return {writer for writer in self._writers[span.start : span.stop] if writer is not None}

    def write(self, access: Access, step: int) -> set[int]:
        """The writers and readers that the step must come after."""
        span = self._span(access)
        before = {writer for writer in self._writers[span.start : span.stop] if writer is not None}
        before.update(reader for index in span for reader in self._readers[index])
        self._starts[span.start : span.stop] = [access.start]
        self._writers[span.start : span.stop] = [step]
        self._readers[span.start : span.stop] = [[]]
        return before

    def _span(self, access: Access) -> range:
        return range(self._cut(access.start), self._cut(access.stop))

    def _cut(self, at: int) -> int:
        index = bisect_right(self._starts, at) - 1
        if self._starts[index] != at:
            index += 1
            self._starts.insert(index, at)
            self._writers.insert(index, self._writers[index - 1])
            self._readers.insert(index, list(self._readers[index - 1]))
        return index


def races(plan: Plan, steps: Steps, before: HappensBefore, /) -> Iterator[Finding]:
    """Pairs of tasks that touch the same bytes, one of them writing, and that nothing orders.

    It is enough to look at neighbours in one legal order: where those are ordered, all are.
    """
    histories: dict[tuple[int, str], _History] = {}
    told: set[tuple[str, str]] = set()
    for step in steps.order:
        for access in accesses(plan, steps, step):
            history = histories.setdefault((access.rank, access.buffer), _History())
            others = history.write(access, step) if access.writes else history.read(access, step)
            for other in sorted(others - {step}):
                one, then = plan.tasks[steps.task[other]], plan.tasks[steps.task[step]]
                if not before(other, step) and (one.id, then.id) not in told:
                    told.add((one.id, then.id))
                    yield _race(one, then, access)


def _race(one: Task, then: Task, access: Access) -> Finding:
    verb = "writes" if access.writes else "reads"
    return Finding(
        kind=FindingKind.RACE,
        ranks=tuple(sorted({one.rank, then.rank})),
        calls=(one.id, then.id),
        sentence=(
            f"Task {then.id!r} {verb} bytes [{access.start}, {access.stop}) of {access.buffer!r} of rank"
            f" {access.rank}, which {one.id!r} touches too, and nothing orders them: let it wait for"
            f" {one.id!r}."
        ),
    )


def outside(plan: Plan, steps: Steps, before: HappensBefore, /) -> Iterator[Finding]:
    """Tasks that touch a rank's bytes before its entry or after its exit (``*.enter.rR``, ``*.exit.rR``)."""
    doors: dict[tuple[str, int], int] = {}
    for position, task in enumerate(plan.tasks):
        for door in ("enter", "exit"):
            if task.id.endswith(f".{door}.r{task.rank}"):
                doors[door, task.rank] = steps.first[position]
    told: set[tuple[str, int]] = set()
    for step in steps.order:
        task = plan.tasks[steps.task[step]]
        for access in accesses(plan, steps, step):
            enter, leave = doors.get(("enter", access.rank)), doors.get(("exit", access.rank))
            early = enter is not None and not before(enter, step)
            late = leave is not None and not before(step, leave)
            if (early or late) and (task.id, access.rank) not in told:
                told.add((task.id, access.rank))
                when = "before it has entered" if early else "after it has left"
                yield Finding(
                    kind=FindingKind.OUTSIDE,
                    ranks=tuple(sorted({task.rank, access.rank})),
                    calls=(task.id,),
                    sentence=(
                        f"Task {task.id!r} may touch {access.buffer!r} of rank {access.rank} {when} the"
                        " collective."
                    ),
                )
