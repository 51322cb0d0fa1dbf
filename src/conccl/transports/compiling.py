"""From a fragment of a plan to a program for each rank.

The fragment is built for blocks of one canonical size, so that every region of it is whole blocks and can be
named instead of measured. What other ranks' tasks touch must lie in shared memory; what only its own rank
touches stays where the caller has it. So an algorithm by way of host memory copies each byte out once and
lets peers read it there, and one that writes into peers' outputs works too, at the price of a copy in and
out.

Leaving a fragment means waiting until no peer touches one's buffers. Where the only buffer that they touch is
staging, that wait is put off until the staging is used again (`Program.release`): so the pieces of a large
message, and calls in a row, overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from conccl.collectives import layout as layouts
from conccl.collectives.choose import fragment_of
from conccl.collectives.layout import Layout, layout_of
from conccl.collectives.ordering import reads_and_writes
from conccl.collectives.transfer import Direction, Reach, Transfer
from conccl.core.errors import PlanError
from conccl.core.ops import Collective, CollectiveKind, DType, ReduceOp
from conccl.core.plan import Engine, Plan
from conccl.transports.contents import UNIT, Contents, Piece, Place, input_blocks, output_blocks
from conccl.transports.order import Order
from conccl.transports.program import (
    Await,
    Block,
    Combine,
    Content,
    Copy,
    Instruction,
    Program,
    Programs,
    Publish,
    Space,
)

WHOLE = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST, CollectiveKind.REDUCE})
"""Kinds whose blocks are consecutive pieces of one message; neighbours move as one."""

TRANSFER = Transfer(engine=Engine.SM, direction=Direction.PULL, reach=Reach.HOST)
"""Processors read each other's staging: reductions take their operands from where peers have put them."""


@lru_cache(maxsize=1024)
def programs(
    *,
    kind: CollectiveKind,
    algorithm: str,
    count: int,
    root: int = 0,
    place: layouts.Place = layouts.Place.OUT_OF_PLACE,
    average: bool = False,
    transfer: Transfer = TRANSFER,
    reads_peers: bool = False,
) -> Programs:
    """The programs of a collective among ``count`` ranks by a named algorithm; ``root`` is a position.

    ``reads_peers``: what others touch stays where it is, and they read it there; nothing is staged.
    """
    collective = Collective(
        kind=kind,
        nbytes=count * UNIT,
        ranks=count,
        dtype=DType.FP32,
        reduce_op=ReduceOp.AVG if average else ReduceOp.SUM,
    )
    layout = layout_of(collective, root=root, place=place)
    plan = fragment_of(layout, algorithm=algorithm, transfer=transfer)
    return compile_fragment(plan, layout=layout, reads_peers=reads_peers)


def compile_fragment(plan: Plan, /, *, layout: Layout, reads_peers: bool = False) -> Programs:
    """The programs that carry out a fragment of canonical blocks; its ranks are positions."""
    plan.require_whole()
    order = Order(plan)
    shared = _Shared(plan, staged=not reads_peers)
    private = _Private(plan, layout)
    contents = Contents(layout)
    writers = [_Writer(rank, layout, shared, private, reads_peers) for rank in range(layout.count)]
    for step in order.sequence:
        task = plan.tasks[order.steps.task[step]]
        if task.parts:
            raise PlanError(f"task {task.id!r} is cut into parts; programs take whole blocks (chunks=1).")
        writers[task.rank].add(
            list(contents.through(task)),
            waits=order.waits(step),
            done=order.number[step],
            leaves=task.id.endswith(f".exit.r{task.rank}"),
        )
    awaited = {(wait.rank, wait.steps) for one in writers for wait in one.waits}
    return Programs(
        label=plan.label,
        of_rank=tuple(one.program(awaited) for one in writers),
        staging_units=max(shared.units(rank) for rank in range(layout.count)),
    )


class _Shared:
    """Which buffers other ranks touch, and where in their rank's staging they lie."""

    def __init__(self, plan: Plan, /, *, staged: bool) -> None:
        touched = {
            (region.rank, region.buffer)
            for task in (plan.tasks if staged else ())
            for regions in reads_and_writes(task)
            for region in regions
            if region.rank != task.rank
        }
        self._first: dict[tuple[int, str], int] = {}
        self._units: dict[int, int] = {}
        for buffer in plan.buffers:
            if (buffer.rank, buffer.name) in touched:
                self._first[buffer.rank, buffer.name] = self.units(buffer.rank)
                self._units[buffer.rank] = self.units(buffer.rank) + -(-buffer.nbytes // UNIT)

    def units(self, rank: int, /) -> int:
        """Units of staging that a rank needs."""
        return self._units.get(rank, 0)

    def block(self, place: Place, /) -> Block | None:
        """Where in staging a place is; None if its buffer is its rank's own."""
        first = self._first.get((place.rank, place.buffer))
        if first is None:
            return None
        return Block(space=Space.STAGING, unit=first + place.unit, rank=place.rank)


class _Private:
    """Where in its own memory a rank has what is not in staging."""

    def __init__(self, plan: Plan, layout: Layout, /) -> None:
        self._windows = layout.windows
        self._first: dict[tuple[int, str], int] = {}
        self._sizes = {(one.rank, one.name): one.nbytes for one in plan.buffers}
        self._units: dict[int, int] = {}

    def units(self, rank: int, /) -> int:
        """Units of scratch that a rank needs."""
        return self._units.get(rank, 0)

    def block(self, place: Place, /, *, reader: int) -> Block:
        """Where a place is, seen from the rank that touches it."""
        rank = -1 if place.rank == reader else place.rank
        if place.buffer == self._windows.input.buffer:
            return Block(space=Space.INPUT, unit=place.unit, rank=rank)
        if place.buffer == self._windows.output.buffer:
            return Block(space=Space.OUTPUT, unit=place.unit, rank=rank)
        key = place.rank, place.buffer
        if key not in self._first:
            self._first[key] = self.units(place.rank)
            self._units[place.rank] = self.units(place.rank) + -(-self._sizes[key] // UNIT)
        return Block(space=Space.SCRATCH, unit=self._first[key] + place.unit, rank=rank)


@dataclass(slots=True)
class _Writer:
    """Writes one rank's program while the fragment is followed in order."""

    rank: int
    layout: Layout
    shared: _Shared
    private: _Private
    reads_peers: bool
    _written: list[Instruction] = field(default_factory=list)
    _heard: dict[int, int] = field(default_factory=dict)
    _release: list[Await] = field(default_factory=list)

    def add(self, pieces: Sequence[Piece], *, waits: Iterable[Await], done: int, leaves: bool) -> None:
        """Append a step: what it waits for, what it does and that so many are complete then."""
        if done == 1:  # it enters: from here on peers may touch what is shared
            self._mirror(input_blocks(self.layout, self.rank), inward=True)
        outputs = output_blocks(self.layout, self.rank)
        written_by_peers = any(self.shared.block(place) for _, place in outputs)
        for wait in waits:
            if leaves and not written_by_peers and not self.reads_peers:
                self._release.append(wait)
            elif wait.steps > self._heard.get(wait.rank, 0):
                self._heard[wait.rank] = wait.steps
                self._written.append(wait)
        self._written.extend(_joined([self._instruction(one) for one in pieces], self.layout.kind))
        self._written.append(Publish(steps=done))
        if leaves and written_by_peers:
            self._mirror(outputs, inward=False)

    @property
    def waits(self) -> Iterator[Await]:
        """What this rank waits for in its program."""
        return (one for one in self._written if isinstance(one, Await))

    def program(self, awaited: set[tuple[int, int]], /) -> Program:
        """The program; progress is told where a peer waits for it, once between two waits, and at the end."""
        kept: list[Instruction] = []
        pending: list[Instruction] = []
        done = 0
        for one in self._written:
            if isinstance(one, Publish):
                done = one.steps
                if (self.rank, one.steps) in awaited:
                    pending = [one]
                continue
            if isinstance(one, Await):
                kept += pending
                pending = []
            kept.append(one)
        return Program(
            rank=self.rank,
            instructions=(*kept, Publish(steps=done)),
            release=tuple(self._put_off()),
            scratch_units=self.private.units(self.rank),
        )

    def _put_off(self) -> Iterator[Await]:
        return (one for one in self._release if one.steps > self._heard.get(one.rank, 0))

    def _mirror(self, blocks: Iterable[tuple[int, Place]], *, inward: bool) -> None:
        """Copy the caller's blocks into a buffer that peers touch, or from it."""
        copies = []
        for unit, (content, place) in enumerate(blocks):
            shared = self.shared.block(place)
            if shared is None:
                return
            own = Block(space=Space.INPUT if inward else Space.OUTPUT, unit=unit)
            source, destination = (own, shared) if inward else (shared, own)
            copies.append(Copy(source=source, destination=destination, content=_one(content)))
        self._written.extend(_joined(copies, self.layout.kind))

    def _instruction(self, piece: Piece) -> Copy | Combine:
        destination, *sources = (self._block(place) for place in (piece.destination, *piece.sources))
        if destination.rank not in (-1, self.rank) and destination.space is not Space.STAGING:
            raise PlanError(f"rank {self.rank} writes into rank {destination.rank}; peers are only read.")
        content = _one(piece.content)
        if piece.reduces:
            return Combine(
                destination=destination, sources=tuple(sources), content=content, divisor=piece.divisor
            )
        return Copy(destination=destination, source=sources[0], content=content)

    def _block(self, place: Place) -> Block:
        return self.shared.block(place) or self.private.block(place, reader=self.rank)


def _one(content: int) -> Content:
    return Content(first=content, stop=content + 1)


def _joined(instructions: Iterable[Copy | Combine], kind: CollectiveKind) -> list[Copy | Combine]:
    """Neighbouring blocks of one message as one; blocks of their own may lie anywhere and stay apart."""
    joined: list[Copy | Combine] = []
    for one in instructions:
        last = joined[-1] if joined and kind in WHOLE else None
        if last is not None and _follows(last, one):
            content = Content(first=last.content.first, stop=one.content.stop)
            joined[-1] = (
                Copy(destination=last.destination, source=last.source, content=content)
                if isinstance(last, Copy)
                else Combine(
                    destination=last.destination,
                    sources=last.sources,
                    content=content,
                    divisor=last.divisor,
                )
            )
        else:
            joined.append(one)
    return joined


def _follows(last: Copy | Combine, one: Copy | Combine) -> bool:
    length = last.content.stop - last.content.first
    before, after = _blocks(last), _blocks(one)
    return (
        type(last) is type(one)
        and last.content.stop == one.content.first
        and len(before) == len(after)
        and all(
            (a.space, a.rank, a.unit + length) == (b.space, b.rank, b.unit)
            for a, b in zip(before, after, strict=True)
        )
    )


def _blocks(instruction: Copy | Combine) -> tuple[Block, ...]:
    sources = instruction.sources if isinstance(instruction, Combine) else (instruction.source,)
    return (instruction.destination, *sources)
