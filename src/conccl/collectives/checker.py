"""Proves a fragment right: every byte arrives once, in every legal order of its tasks, and none is in danger.

What is found is returned as records; `finding.require_ok` turns them into an error. Issue orders of several
collectives are checked by `issue_order`.
"""

from __future__ import annotations

from collections.abc import Iterator

from conccl.collectives.finding import Finding, FindingKind
from conccl.collectives.flow import follow
from conccl.collectives.layout import Layout
from conccl.collectives.ordering import HappensBefore, outside, races, reads_and_writes
from conccl.core.ops import Region, Signal
from conccl.core.plan import Engine, Plan


def check(plan: Plan, /, *, layout: Layout, sm_count: int | None = None) -> tuple[Finding, ...]:
    """All that is wrong with a fragment that should carry this layout out; empty where it is right.

    ``sm_count``: SMs of a device, to find tasks that wait in their middle (holding SMs) and may keep out
    what they wait for. Cost grows with steps x lanes (see ``benchmarks``).
    """
    steps = plan.steps()
    before = HappensBefore(plan, steps)
    return (
        *_regions(plan),
        *races(plan, steps, before),
        *outside(plan, steps, before),
        *follow(plan, steps, layout),
        *([] if sm_count is None else _residency(plan, sm_count)),
    )


def check_hazards(plan: Plan, /, *, sm_count: int | None = None) -> tuple[Finding, ...]:
    """Races, bytes out of bounds and too few SMs in any plan: several collectives in flight, say.

    That a plan does not wait for itself is checked when it is made.
    """
    steps = plan.steps()
    before = HappensBefore(plan, steps)
    return (
        *_regions(plan),
        *races(plan, steps, before),
        *([] if sm_count is None else _residency(plan, sm_count)),
    )


def _regions(plan: Plan) -> Iterator[Finding]:
    sizes = {(one.rank, one.name): one.nbytes for one in plan.buffers}
    for task in plan.tasks:
        sources, destinations = reads_and_writes(task)
        for region in (*sources, *destinations):
            size = sizes.get((region.rank, region.buffer), 0)
            if region.end > size and region.nbytes:
                yield Finding(
                    kind=FindingKind.OUT_OF_BOUNDS,
                    ranks=tuple(sorted({task.rank, region.rank})),
                    calls=(task.id,),
                    sentence=(
                        f"Task {task.id!r} touches bytes [{region.offset}, {region.end}) of"
                        f" {region.buffer!r} of rank {region.rank}, which has {size}."
                    ),
                )
        for source in sources:
            for destination in destinations:
                if _overlap(source, destination):
                    yield Finding(
                        kind=FindingKind.OVERLAP,
                        ranks=(task.rank,),
                        calls=(task.id,),
                        sentence=(
                            f"Task {task.id!r} reads and writes {source.buffer!r} of rank {source.rank} at"
                            f" {source.offset} and {destination.offset}, which overlap."
                        ),
                    )


def _overlap(one: Region, other: Region) -> bool:
    same_buffer = (one.rank, one.buffer) == (other.rank, other.buffer)
    return same_buffer and one != other and one.offset < other.end and other.offset < one.end


def _residency(plan: Plan, sm_count: int) -> Iterator[Finding]:
    """Tasks that hold SMs while they wait must leave room for the largest of those that they wait for."""
    for rank in plan.ranks:
        holding: dict[str, int] = {}
        passing = 0
        names: list[str] = []
        for task in plan.for_rank(rank):
            if task.engine is not Engine.SM or isinstance(task.op, Signal):
                continue
            sms = sm_count if task.sms is None else task.sms
            if any(dependency.needed_by for dependency in task.after):
                holding[task.lane] = max(holding.get(task.lane, 0), sms)
                names.append(task.id)
            else:
                passing = max(passing, min(sms, 1))
        needed = sum(holding.values()) + passing
        if holding and needed > sm_count:
            yield Finding(
                kind=FindingKind.POSSIBLE_DEADLOCK,
                ranks=(rank,),
                calls=tuple(names),
                sentence=(
                    f"Tasks of rank {rank} that wait in their middle hold {sum(holding.values())} SMs"
                    f" together on {len(holding)} lanes; the device has {sm_count}, so what they wait for may"
                    " never start."
                    " Lower their sms."
                ),
            )
