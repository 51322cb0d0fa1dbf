"""Splitting a micro-batch or sequence: each part's communication hides under the others' compute (ISO).

A chain is what a layer does in order: an op, the communication that it feeds, the next op that needs it, and
so on. One after the other, nothing overlaps. With the tokens in two parts, one part computes while the other
communicates (ISO, arXiv:2409.11155; the same with micro-batches in expert parallelism).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TypeVar

from conccl.core.errors import InputError
from conccl.core.hardware import System
from conccl.core.ops import Collective, Communication, Compute, Copy, Gemm
from conccl.core.pair import Dependence, Pair
from conccl.core.plan import Dependency, Engine, Plan, Side, Task, merged
from conccl.strategies.choices import Path
from conccl.strategies.transfers import FIRST, Means, transfer

Op = TypeVar("Op", Compute, Communication)


def split_chain(
    chain: Sequence[Pair],
    /,
    *,
    parts: int,
    system: System,
    engine: Engine = Engine.SM,
    path: Path = Path.LIBRARY,
    sms: int | None = None,
) -> Plan:
    """Ops that each feed their communication, which feeds the next op; ``parts`` 1: as it is, one by one.

    Communication goes first where both sides have CTAs pending, as otherwise the other part's op would
    hold it up.
    """
    if parts < 1:
        raise InputError(f"a chain in {parts} parts; give 1 (as it is) or more.")
    for pair in chain:
        if pair.dependence is not Dependence.COMPUTE_FEEDS_COMMUNICATION:
            raise InputError(
                f"a chain is made of ops that feed their communication; {pair.source or 'a pair'} says"
                f" {pair.dependence}."
            )
    means = Means(engine=engine, path=path, sms=sms, priority=FIRST)
    ranks = range(max((_ranks(pair.communication) for pair in chain), default=1))
    before: dict[tuple[int, int], tuple[Dependency, ...]] = {}
    plans: list[Plan] = []
    for index, pair in enumerate(chain):
        computes = _shares_of(pair.compute, parts)
        moves = _shares_of(pair.communication, parts)
        for part in range(parts):
            tasks = tuple(
                Task(
                    id=f"compute.{index}.{part}.r{rank}",
                    op=computes[part],
                    rank=rank,
                    lane="compute",
                    side=Side.COMPUTE,
                    after=before.get((part, rank), ()),
                )
                for rank in ranks
            )
            needs = dict.fromkeys(one.task for task in tasks for one in task.after)
            plans.append(Plan(tasks=tasks, needs=tuple(needs)))
            moving = transfer(
                moves[part],
                name=f"communication.{index}.{part}",
                means=means,
                system=system,
                after={task.rank: (Dependency(task=task.id),) for task in tasks},
            )
            plans.append(moving.plan)
            before.update({(part, rank): ends for rank, ends in moving.ends.items()})
    return merged(plans)


def _ranks(op: Communication) -> int:
    return op.ranks if isinstance(op, Collective) else 1


def _shares_of(op: Op, parts: int) -> list[Op]:
    """The op on each part of the tokens: rows of a GEMM, bytes of a transfer."""
    field = "m" if isinstance(op, Gemm) else "nbytes"
    if not isinstance(op, (Gemm, Collective, Copy)):
        raise InputError(
            f"a chain is split by rows of GEMMs and bytes of transfers, not of {type(op).__name__}."
        )
    whole = getattr(op, field)
    if whole < parts:
        raise InputError(f"{parts} parts of a {type(op).__name__} of {field} {whole}: give fewer parts.")
    unit = op.dtype.nbytes if isinstance(op, Collective) and whole % op.dtype.nbytes == 0 else 1
    bounds = [whole // unit * part // parts * unit for part in range(parts)] + [whole]
    return [dataclasses.replace(op, **{field: b - a}) for a, b in itertools.pairwise(bounds)]
