"""Binds a program to a message: how long its blocks are, and in how many tiles a large one passes.

A tile is one run of the program. Of a message with a block for each pair or rank it takes the next piece of
every block, of one whole message the next stretch, cut into blocks. All units of staging are equally long; a
block that is shorter leaves the rest of its unit alone, one that is empty is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conccl.core.errors import InputError
from conccl.core.ops import CollectiveKind
from conccl.transports.compiling import WHOLE
from conccl.transports.program import Await, Block, Combine, Content, Copy, Program, Programs, Space

GRAIN = 64
"""Units are multiples of this: a cache line, and whole elements of every type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a collective moves, in bytes."""

    kind: CollectiveKind
    count: int
    """Ranks."""
    sizes: tuple[int, ...]
    """Bytes of each block as the compiler numbers them; for a whole message one entry, all of it."""

    @property
    def nbytes(self) -> int:
        """All blocks together."""
        return sum(self.sizes)

    @property
    def is_whole(self) -> bool:
        """Whether it is one message, cut as suits."""
        return self.kind in WHOLE

    @property
    def longest(self) -> int:
        """Bytes of the longest block."""
        return -(-self.nbytes // self.count) if self.is_whole else max(self.sizes, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """How a message passes."""

    message: Message
    unit_nbytes: int
    """Bytes of a unit of staging: of the piece of a block that a tile takes, at most."""
    tiles: int

    def lengths(self, contents: Sequence[Content], tile: int, /) -> list[int]:
        """Bytes of contents in a tile."""
        unit, message = self.unit_nbytes, self.message
        if message.is_whole:
            rest = message.nbytes - tile * message.count * unit
            return [min(one.stop * unit, rest) - min(one.first * unit, rest) for one in contents]
        begun, sizes = tile * unit, message.sizes
        return [min(max(sizes[one.first] - begun, 0), unit) for one in contents]

    def offset(self, tile: int, /) -> int:
        """Where in each of the caller's blocks a tile begins."""
        return tile * self.unit_nbytes * (self.message.count if self.message.is_whole else 1)


def tiling_of(message: Message, /, *, staging_units: int, slot_nbytes: int) -> Tiling:
    """As few tiles as staging slots of this size allow."""
    longest = -(-max(message.longest, 1) // GRAIN) * GRAIN
    if staging_units == 0:
        return Tiling(message=message, unit_nbytes=longest, tiles=1)
    room = slot_nbytes // staging_units // GRAIN * GRAIN
    if room == 0:
        raise InputError(
            f"a staging slot of {slot_nbytes} bytes is too small for the {staging_units} blocks that a rank"
            f" stages in {message.kind} among {message.count} ranks. Give {staging_units * GRAIN} or more."
        )
    unit = min(longest, room)
    return Tiling(message=message, unit_nbytes=unit, tiles=max(1, -(-longest // unit)))


COPY, COMBINE, AWAIT, PUBLISH, FETCH, FETCH_COMBINE = range(6)
"""Codes of lowered instructions."""


class Lowered:
    """A program as an executor's loop wants it: small integers into tables of addresses and lengths.

    ``code`` holds (COPY, to, from, length), (COMBINE, to, (from, ...), length, divisor), (AWAIT, rank, steps)
    and (PUBLISH, steps); ``blocks`` and ``contents`` say what the numbers stand for. FETCH is a COPY from
    another rank's memory, FETCH_COMBINE a COMBINE of which some sources lie there.
    """

    def __init__(self, programs: Programs, rank: int, /) -> None:
        program = programs.of_rank[rank]
        self.program: Program = program
        self.staging_units = programs.staging_units
        blocks: dict[Block, int] = {}
        contents: dict[Content, int] = {}

        def block(one: Block) -> int:
            return blocks.setdefault(one, len(blocks))

        code: list[tuple[Any, ...]] = []
        for one in program.instructions:
            match one:
                case Copy():
                    length = contents.setdefault(one.content, len(contents))
                    what = FETCH if _is_abroad(one.source) else COPY
                    code.append((what, block(one.destination), block(one.source), length))
                case Combine():
                    length = contents.setdefault(one.content, len(contents))
                    sources = tuple(block(source) for source in one.sources)
                    what = FETCH_COMBINE if any(map(_is_abroad, one.sources)) else COMBINE
                    code.append((what, block(one.destination), sources, length, one.divisor))
                case Await():
                    code.append((AWAIT, one.rank, one.steps))
                case _:
                    code.append((PUBLISH, one.steps))
        self.code = tuple(code)
        self.blocks = tuple(blocks)
        self.contents = tuple(contents)
        self.release = tuple((one.rank, one.steps) for one in program.release)
        self.reads_peers = any(code[0] in (FETCH, FETCH_COMBINE) for code in self.code)

    def addresses(
        self,
        tiling: Tiling,
        tile: int,
        /,
        *,
        inputs: Sequence[int],
        outputs: Sequence[int],
        staging: Sequence[int],
        scratch: int,
    ) -> list[int]:
        """Where each block lies in a tile; 0 for those in other ranks' memory.

        ``inputs`` and ``outputs`` are addresses of the caller's blocks (of a whole message: one), ``staging``
        those of every rank's slot.
        """
        unit, offset, whole = tiling.unit_nbytes, tiling.offset(tile), tiling.message.is_whole
        addresses = []
        for one in self.blocks:
            if one.space is Space.STAGING:
                addresses.append(staging[one.rank] + one.unit * unit)
            elif one.rank >= 0:
                addresses.append(0)
            elif one.space is Space.SCRATCH:
                addresses.append(scratch + one.unit * unit)
            else:
                own = inputs if one.space is Space.INPUT else outputs
                addresses.append(own[0] + offset + one.unit * unit if whole else own[one.unit] + offset)
        return addresses


def table_of(inputs: Sequence[int], outputs: Sequence[int], scratch: int, count: int, /) -> list[int]:
    """A rank's addresses as its peers look them up: scratch, inputs, outputs."""
    return [scratch, *inputs, *(0,) * (count - len(inputs)), *outputs]


def address_abroad(block: Block, table: Sequence[int], tiling: Tiling, /) -> int:
    """Where a block lies in the memory of the rank whose table this is; such programs take one tile."""
    if block.space is Space.SCRATCH:
        return table[0] + block.unit * tiling.unit_nbytes
    first = 1 if block.space is Space.INPUT else 1 + tiling.message.count
    if tiling.message.is_whole:
        return table[first] + block.unit * tiling.unit_nbytes
    return table[first + block.unit]


def _is_abroad(block: Block) -> bool:
    return block.rank >= 0 and block.space is not Space.STAGING
