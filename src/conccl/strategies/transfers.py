"""Communication as a fragment of a plan: one library call, one copy, or the moves of a collective."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conccl.collectives.choose import fragment
from conccl.collectives.layout import Place
from conccl.collectives.transfer import Embedding, Transfer
from conccl.core.errors import InputError
from conccl.core.hardware import Device, System
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Communication, Copy, Move, Region
from conccl.core.plan import Dependency, Engine, Launch, Plan, Side, Task
from conccl.strategies.choices import Path

LANE = "communication"

FIRST = -1
"""The priority of communication that comes first; 0 is the default."""

Waits = Mapping[int, tuple[Dependency, ...]]
"""Rank -> what its part must wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What moves the bytes, and what of the SMs it may have."""

    engine: Engine
    path: Path = Path.LIBRARY
    sms: int | None = None
    """SMs that a kernel may occupy, one CTA on each; None: the hardware decides."""
    priority: int = 0
    partition: str | None = None
    """The group of ``sms`` SMs that a kernel runs in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferring:
    """A communication as a fragment, and how each rank knows that its part is over."""

    plan: Plan
    ends: Waits


def transfer(
    op: Communication,
    /,
    *,
    name: str,
    means: Means,
    system: System,
    after: Waits | None = None,
    ready: Callable[[Region], tuple[Dependency, ...]] | None = None,
) -> Transferring:
    """The communication's tasks on all of its ranks; a rank's begin after what ``after`` names for it.

    ``ready`` says what bytes of a planned collective's input wait for beside that.
    """
    if not isinstance(op, (Collective, Copy)):
        raise InputError(f"a pair communicates by a Collective or a Copy, not by a {type(op).__name__}.")
    ranks = range(op.ranks if isinstance(op, Collective) else 1)
    if len(ranks) > system.gpus:
        raise InputError(
            f"communication among {len(ranks)} ranks on {system.gpus} GPUs. Give --gpus {len(ranks)}."
        )
    if isinstance(op, Collective) and means.engine is Engine.COPY_ENGINE and means.path is Path.PLANNED:
        return _planned(op, name=name, system=system, after=after or {}, ready=ready)
    return _single(op, ranks=ranks, name=name, means=means, after=after or {})


def _single(op: Collective | Copy, *, ranks: range, name: str, means: Means, after: Waits) -> Transferring:
    """One task a rank."""
    by_sms = means.engine is Engine.SM
    tasks = tuple(
        Task(
            id=f"{name}.r{rank}",
            op=op,
            rank=rank,
            lane=LANE,
            side=Side.COMMUNICATION,
            engine=means.engine,
            priority=means.priority,
            sms=means.sms if by_sms else None,
            ctas_per_sm=1 if by_sms and means.sms is not None else None,
            partition=means.partition if by_sms else None,
            after=after.get(rank, ()),
        )
        for rank in ranks
    )
    needs = dict.fromkeys(dependency.task for task in tasks for dependency in task.after)
    partitions = {means.partition: means.sms} if means.partition and means.sms and by_sms else {}
    return Transferring(
        plan=Plan(tasks=tasks, partitions=partitions, needs=tuple(needs)),
        ends={task.rank: (Dependency(task=task.id),) for task in tasks},
    )


def _planned(
    op: Collective,
    *,
    name: str,
    system: System,
    after: Waits,
    ready: Callable[[Region], tuple[Dependency, ...]] | None,
) -> Transferring:
    """Copies to every peer, each on an engine of its own; what SMs must do beside them goes first."""
    device = system.device
    place = Place.IN_PLACE if op.kind is CollectiveKind.ALL_GATHER else Place.OUT_OF_PLACE
    plan = fragment(
        op,
        place=place,
        transfer=Transfer(
            launch=Launch.PRELAUNCHED,
            priority=FIRST,
            gpus_per_node=system.gpus_per_node if system.nodes > 1 else None,
        ),
        embedding=Embedding(name=name, lane=LANE, after=after, ready=ready),
    )
    plan = dataclasses.replace(plan, tasks=tuple(_by_engine(task, device) for task in plan.tasks))
    return Transferring(
        plan=plan, ends={rank: (Dependency(task=f"{name}.exit.r{rank}"),) for rank in range(op.ranks)}
    )


def _by_engine(task: Task, device: Device) -> Task:
    """Copies within a GPU go to its engines too, where those can."""
    local = isinstance(task.op, Move) and task.op.source.rank == task.op.destination.rank
    if local and device.copy_engines.local_copies:
        return dataclasses.replace(task, engine=Engine.COPY_ENGINE, sms=None, ctas_per_sm=None)
    return task
