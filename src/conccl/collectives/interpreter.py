"""Executes a fragment on numpy buffers, in any order that its dependencies allow.

A plan that is right gives the same bytes in every legal order; seeds make different ones. Steps (parts of
tasks) are atomic here; that no two of them touch the same bytes unordered is the checker's to prove.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from conccl.collectives.elements import Bytes, combine
from conccl.collectives.layout import Layout
from conccl.core.errors import PlanError
from conccl.core.ops import Move, Multicast, Reduce, Region, Signal, Swap
from conccl.core.plan import Part, Plan, Steps, Task

Memory = Mapping[tuple[int, str], Bytes]
"""(rank, buffer) -> its bytes."""


def allocate(plan: Plan, /) -> dict[tuple[int, str], Bytes]:
    """The plan's buffers, filled with a pattern that no test should mistake for a result."""
    return {(one.rank, one.name): np.full(one.nbytes, 0xA5, dtype=np.uint8) for one in plan.buffers}


def run(plan: Plan, memory: Memory, /, *, seed: int | None = None) -> None:
    """Carry out the plan in place. With a seed in a random legal order, without in that of `Steps.order`."""
    plan.require_whole()
    steps = plan.steps()
    for step in steps.order if seed is None else _shuffled(steps, random.Random(seed)):
        task = plan.tasks[steps.task[step]]
        number = step - steps.first[steps.task[step]]
        _carry_out(task, task.parts[number] if task.parts else None, memory)


def interpret(
    plan: Plan, /, *, layout: Layout, inputs: Sequence[Bytes], seed: int | None = None
) -> list[Bytes]:
    """What each position's output holds after a fragment ran on these inputs (bytes, one a position)."""
    memory = allocate(plan)
    for position, given in enumerate(inputs):
        if given.size:
            _bytes(layout.whole_input(position), memory)[:] = given
    run(plan, memory, seed=seed)
    nothing = np.zeros(0, dtype=np.uint8)
    ends = [layout.whole_output(position) for position in range(layout.count)]
    return [_bytes(end, memory).copy() if end.nbytes else nothing for end in ends]


def _shuffled(steps: Steps, source: random.Random) -> list[int]:
    waits = [len(awaited) for awaited in steps.before]
    followers: list[list[int]] = [[] for _ in waits]
    for step, awaited in enumerate(steps.before):
        for other in awaited:
            followers[other].append(step)
    ready = [step for step, count in enumerate(waits) if count == 0]
    order = []
    while ready:
        pick = source.randrange(len(ready))
        ready[pick], ready[-1] = ready[-1], ready[pick]
        step = ready.pop()
        order.append(step)
        for follower in followers[step]:
            waits[follower] -= 1
            if waits[follower] == 0:
                ready.append(follower)
    return order


def _carry_out(task: Task, part: Part | None, memory: Memory) -> None:
    match task.op:
        case Signal():
            pass
        case Move(source=source, destination=destination):
            _bytes(destination, memory, part)[:] = _bytes(source, memory, part).copy()
        case Multicast(source=source, destinations=destinations):
            read = _bytes(source, memory, part).copy()
            for destination in destinations:
                _bytes(destination, memory, part)[:] = read
        case Swap(first=first, second=second):
            one, other = _bytes(first, memory, part), _bytes(second, memory, part)
            one[:], other[:] = other.copy(), one.copy()
        case Reduce() as op:
            read_all = [_bytes(source, memory, part) for source in op.sources]
            divisor = op.divisor or len(op.sources)
            result = combine(read_all, dtype=op.dtype, reduce_op=op.reduce_op, divisor=divisor)
            _bytes(op.destination, memory, part)[:] = result
        case _:
            raise PlanError(
                f"task {task.id!r} is a {type(task.op).__name__}; only moves and reductions of bytes can be"
                " interpreted."
            )


def _bytes(region: Region, memory: Memory, part: Part | None = None) -> Bytes:
    start = region.offset if part is None else region.offset + part.start
    stop = region.end if part is None else region.offset + part.stop
    held = memory.get((region.rank, region.buffer))
    if held is None or stop > held.size:
        size = "does not exist" if held is None else f"has {held.size} bytes"
        raise PlanError(
            f"bytes [{start}, {stop}) of buffer {region.buffer!r} of rank {region.rank}: it {size}."
        )
    return held[start:stop]
