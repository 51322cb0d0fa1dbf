"""A GEMM and the collective that it feeds or that feeds it, joined tile by tile (tracking, triggering: T3).

The producer makes the blocks that leave first first, each rank another one, so that the steps of all ranks
line up; each group of tiles is a part, and releases the transfers of its bytes. The consumer takes blocks in
the order in which they arrive, and waits in its middle for those that have not.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from conccl.collectives.arrival import Arrivals
from conccl.collectives.choose import fragment
from conccl.collectives.layout import Layout, divide, layout_of
from conccl.collectives.transfer import Direction, Embedding, Transfer
from conccl.core.errors import InputError
from conccl.core.hardware import Device, System, Topology
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Gemm, Move, Reduce, Region
from conccl.core.plan import Dependency, Engine, Launch, Part, Plan, Task
from conccl.strategies.transfers import FIRST, LANE

NAME = "communication"

Ready = Callable[[Region], tuple[Dependency, ...]]
"""What must be complete before these bytes are read."""

FED = frozenset({CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_REDUCE})
"""Collectives that a GEMM's output can go into block by block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """The collective as a fragment, and what the GEMM of each rank has to do with it."""

    plan: Plan
    parts: dict[int, tuple[Part, ...]]
    """Rank -> the GEMM's parts, in the order in which it makes them."""
    waits: dict[int, tuple[Dependency, ...]]
    """Rank -> what parts of the GEMM wait for."""


def feeding(gemm: Gemm, op: Collective, /, *, parts: int, system: System) -> Fusion:
    """The GEMM's output goes into the collective, part by part."""
    written = gemm.batch * gemm.m * gemm.n * gemm.output_dtype.nbytes
    if op.kind not in FED or written != op.nbytes:
        raise InputError(
            f"a GEMM that writes {written} bytes cannot be fused with {op.kind} of {op.nbytes}: fused are"
            f" {', '.join(sorted(FED))} of exactly what it writes."
        )
    layout = layout_of(op)
    by_block = max(1, parts // op.ranks)
    ring = _goes_round(op, system.device)
    made = {
        position: tuple(_in_turn(layout, position, by_block=by_block, ring=ring))
        for position in range(op.ranks)
    }

    by_start = {rank: sorted((part.start, i) for i, part in enumerate(own)) for rank, own in made.items()}

    def ready(region: Region, /) -> tuple[Dependency, ...]:
        owned = by_start[region.rank]
        low = bisect.bisect_right(owned, (region.offset, len(owned))) - 1
        high = bisect.bisect_left(owned, (region.end, -1))
        last = max((index for _, index in owned[low:high]), default=None)
        return () if last is None else (Dependency(task=_compute(region.rank), part=last),)

    plan = _fragment(op, system=system, ready=ready, chunks=by_block, ring=ring)
    return Fusion(plan=plan, parts=made, waits={})


def fed(gemm: Gemm, op: Collective, /, *, parts: int, system: System) -> Fusion:
    """What the collective gathers goes into the GEMM, block by block as it arrives."""
    if op.kind is not CollectiveKind.ALL_GATHER or gemm.m < op.ranks:
        raise InputError(
            f"{op.kind} among {op.ranks} ranks cannot be fused with a GEMM of {gemm.m} rows behind it:"
            " fused is all_gather of its rows, at least one from each rank."
        )
    layout = layout_of(op)
    plan = _fragment(op, system=system, chunks=max(1, parts // op.ranks), ring=_goes_round(op, system.device))
    arrivals = Arrivals(plan)
    written = gemm.batch * gemm.m * gemm.n * gemm.output_dtype.nbytes
    rows = divide(written, op.ranks, 1)
    made: dict[int, tuple[Part, ...]] = {}
    waits: dict[int, tuple[Dependency, ...]] = {}
    for position in range(op.ranks):
        order = [(position - step) % op.ranks for step in range(op.ranks)]
        made[position] = tuple(Part(start=rows[block], stop=rows[block + 1]) for block in order)
        waits[position] = tuple(
            dataclasses.replace(dependency, needed_by=index)
            for index, block in enumerate(order)
            if block != position
            for dependency in arrivals.of(layout.got(position, block))
        )
    return Fusion(plan=plan, parts=made, waits=waits)


def _compute(rank: int) -> str:
    return f"compute.r{rank}"


def _goes_round(op: Collective, device: Device) -> bool:
    if op.kind is CollectiveKind.ALL_TO_ALL:
        return False
    return device.peer_topology is Topology.RING and op.ranks > 2


def _in_turn(layout: Layout, position: int, *, by_block: int, ring: bool) -> Iterator[Part]:
    """A rank's output in the order in which the collective wants it, its own block last."""
    count = layout.count
    starts = layout.starts[position]
    for step in range(1, count + 1):
        ahead, behind = (position + step) % count, (position - step) % count
        if not ring:  # straight to each peer, the next one first
            yield from _cut(starts[ahead], starts[ahead + 1], by_block)
            continue
        # two rings, each with its half of every block; the second one goes the other way round
        forward = _cut(starts[behind], _middle(layout, starts, behind), by_block)
        backward = _cut(_middle(layout, starts, ahead), starts[ahead + 1], by_block)
        for pieces in zip(forward, backward, strict=True):
            yield from pieces


def _middle(layout: Layout, starts: Sequence[int], block: int) -> int:
    return starts[block] + divide(starts[block + 1] - starts[block], 2, layout.unit)[1]


def _cut(start: int, stop: int, pieces: int) -> Iterator[Part]:
    for a, b in itertools.pairwise(divide(stop - start, pieces, 1)):
        yield Part(start=start + a, stop=start + b)


def _fragment(op: Collective, *, system: System, chunks: int, ring: bool, ready: Ready | None = None) -> Plan:
    """The collective by copy engines; where those can add, they read peers and add in one go."""
    device = system.device
    adding = device.copy_engines.can_reduce
    transfer = Transfer(
        engine=Engine.SM if adding else Engine.COPY_ENGINE,
        direction=Direction.PULL if adding else Direction.PUSH,
        engines=2 if ring else None,
        sms=2 * op.ranks,
        chunks=chunks,
        launch=Launch.PRELAUNCHED,
        priority=FIRST,
    )
    plan = fragment(
        op,
        algorithm="ring" if ring else "direct",
        transfer=transfer,
        embedding=Embedding(name=NAME, lane=LANE, ready=ready),
    )
    return dataclasses.replace(plan, tasks=tuple(_by_engine(task, device) for task in plan.tasks))


def _by_engine(task: Task, device: Device) -> Task:
    """What engines can do goes to them: copies to peers, local ones and additions where they are able."""
    engines = device.copy_engines
    if isinstance(task.op, Reduce) and engines.can_reduce:
        able = True
    elif isinstance(task.op, Move):
        able = task.op.source.rank != task.op.destination.rank or engines.local_copies
    else:
        able = False
    return dataclasses.replace(task, engine=Engine.COPY_ENGINE, sms=None, ctas_per_sm=None) if able else task
