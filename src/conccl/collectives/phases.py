"""What several algorithms are made of: the order of peers, one's own block, and bytes that meet others.

What moves is described by functions from a position and a block to a region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from conccl.collectives.builder import Builder
from conccl.core.ops import Region
from conccl.core.plan import Engine

At = Callable[[int, int], Region]
"""Where a position has a block."""
Blocks = Callable[[int], Sequence[int]]
"""Which blocks a position holds, or will."""


def own(position: int, /) -> tuple[int]:
    """Each position holds the block of its own number."""
    return (position,)


def rotated(members: Sequence[int], /) -> Iterator[tuple[int, int, int]]:
    """(step, sender, receiver) of all pairs: in step k each sends to the k-th after itself.

    So no receiver is hit by all at once; NCCL's copy-engine collectives rotate alike.
    """
    count = len(members)
    for step in range(1, count):
        for index in range(count):
            yield step, members[index], members[(index + step) % count]


def keep_own(b: Builder, positions: Sequence[int], /) -> None:
    """Each position's own block from its input to its output; nothing where it is in place."""
    for position in positions:
        b.move(b.layout.given(position, position), b.layout.got(position, position))


def fetch(b: Builder, theirs: Region, slot: Region, /, *, engine: int = 0) -> Region:
    """A peer's bytes as a reduction's source: where they lie if SMs read peers, else moved into the slot."""
    if b.reads_peers:
        return theirs
    b.move(theirs, slot, engine=engine)
    return slot


def in_order(one: Region, other: Region, /, *, swap: bool) -> tuple[Region, Region]:
    """Sources of a reduction in the order that all ranks agree on, so that all get the same bits."""
    return (other, one) if swap else (one, other)


def beside_moves(b: Builder, /, *, lanes: int = 1, lane: int = 0) -> int:
    """A lane for reductions that alternate with moves on so many lanes: neither waits for its turn."""
    moves = b.transfer.engine is Engine.SM and not b.reads_peers
    return lane + lanes if moves and b.transfer.sms >= 2 * lanes else lane
