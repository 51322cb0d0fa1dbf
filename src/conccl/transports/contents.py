"""Which block of a collective each piece of memory holds, while a fragment is followed in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conccl.collectives.layout import Layout
from conccl.core.errors import PlanError
from conccl.core.ops import CollectiveKind, Move, Multicast, Reduce, ReduceOp, Region, Signal
from conccl.core.plan import Task

UNIT = 1024
"""Bytes of a canonical block: a multiple of what layouts and staging are aligned to (128 and 16)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One canonical block of a buffer."""

    rank: int
    buffer: str
    unit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One canonical block that a task moves, or combines from several sources."""

    content: int
    destination: Place
    sources: tuple[Place, ...]
    reduces: bool = False
    divisor: int | None = None


class Contents:
    """What every place holds; blocks have the number of their position, in all_to_all that of their pair."""

    def __init__(self, layout: Layout, /) -> None:
        self._held: dict[Place, int] = {}
        for position in range(layout.count):
            self._held.update({place: block for block, place in input_blocks(layout, position)})

    def through(self, task: Task, /) -> Iterator[Piece]:
        """The blocks that a task moves or combines, in order."""
        match task.op:
            case Signal():
                return
            case Move(source=source, destination=destination):
                yield from self._pieces(destination, (source,))
            case Multicast(source=source, destinations=destinations):
                for destination in destinations:
                    yield from self._pieces(destination, (source,))
            case Reduce() as op:
                yield from self._pieces(op.destination, op.sources, op=op)
            case _:
                raise PlanError(
                    f"task {task.id!r} is a {type(task.op).__name__}; host memory knows moves and reductions."
                )

    def _pieces(
        self, destination: Region, sources: Sequence[Region], *, op: Reduce | None = None
    ) -> Iterator[Piece]:
        divisor = None
        if op is not None and op.reduce_op is ReduceOp.AVG:
            divisor = op.divisor or len(op.sources)
        for to, *given in zip(*(places(one) for one in (destination, *sources)), strict=True):
            held = {self._held[one] for one in given}
            if len(held) > 1:
                raise PlanError(f"a reduction combines different blocks, {sorted(held)}, into {to}.")
            self._held[to] = held.pop()
            yield Piece(
                content=self._held[to],
                destination=to,
                sources=tuple(given),
                reduces=op is not None,
                divisor=divisor,
            )


def places(region: Region, /) -> list[Place]:
    """The canonical blocks of a region."""
    first, inside = divmod(region.offset, UNIT)
    count, rest = divmod(region.nbytes, UNIT)
    if inside or rest:
        raise PlanError(
            f"bytes [{region.offset}, {region.end}) of {region.buffer!r} are no whole blocks of {UNIT};"
            " build the fragment with one engine and one chunk."
        )
    return [Place(rank=region.rank, buffer=region.buffer, unit=first + one) for one in range(count)]


def input_blocks(layout: Layout, position: int, /) -> list[tuple[int, Place]]:
    """The blocks of a position's input and where they lie."""
    numbers = range(layout.count)
    if layout.kind in (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER):
        numbers = range(position, position + 1)
    elif layout.kind is CollectiveKind.ALL_TO_ALL:
        numbers = range(position * layout.count, (position + 1) * layout.count)
    return _numbered(numbers, layout.whole_input(position))


def output_blocks(layout: Layout, position: int, /) -> list[tuple[int, Place]]:
    """The blocks of a position's output and where they lie."""
    numbers = range(layout.count)
    if layout.kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER):
        numbers = range(position, position + 1)
    elif layout.kind is CollectiveKind.ALL_TO_ALL:
        numbers = range(position, layout.count**2, layout.count)
    return _numbered(numbers, layout.whole_output(position))


def _numbered(numbers: range, region: Region) -> list[tuple[int, Place]]:
    return list(zip(numbers, places(region), strict=True)) if region.nbytes else []
