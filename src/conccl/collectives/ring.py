"""Ring algorithms: each rank exchanges with its neighbours only, block after block.

Every link carries the least bytes that the collective allows, in as many dependent steps as there are peers;
staging is two blocks whatever the number of ranks. Chunks keep a chain (broadcast, reduce) busy end to end.
With several engines each has a ring of its own for its share of every block; every other one runs backwards,
so that links are used both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conccl.collectives.builder import Builder
from conccl.collectives.layout import divide, part_of
from conccl.collectives.phases import At, beside_moves, fetch, keep_own
from conccl.core.ops import Region


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """One of the rings that share a collective."""

    members: tuple[int, ...]
    """In the order in which blocks go round."""
    engine: int
    rings: int
    unit: int

    def share(self, region: Region, /) -> Region:
        """This ring's part of a block."""
        bounds = divide(region.nbytes, self.rings, self.unit)
        start, stop = bounds[self.engine], bounds[self.engine + 1]
        return part_of(region, start, stop - start)

    def reduce_lane(self, b: Builder, /) -> int:
        """Where this ring's reductions run."""
        return beside_moves(b, lanes=self.rings, lane=self.engine)


def _rings(b: Builder, members: Sequence[int]) -> Iterator[Ring]:
    rings = min(b.transfer.engines or 1, b.engines)
    for engine in range(rings):
        ordered = tuple(members) if engine % 2 == 0 else (members[0], *reversed(members[1:]))
        yield Ring(members=ordered, engine=engine, rings=rings, unit=b.layout.unit)


def gather_blocks(b: Builder, members: Sequence[int], /, *, source: At, target: At) -> None:
    """All-gather: in each step every member passes on the block that reached it in the step before."""
    count = len(members)
    for ring in _rings(b, members):
        for step in range(count - 1):
            for index, sender in enumerate(ring.members):
                block = ring.members[(index - step) % count]
                have = source(sender, block) if step == 0 else target(sender, block)
                end = target(ring.members[(index + 1) % count], block)
                b.move(ring.share(have), ring.share(end), engine=ring.engine)


def reduce_blocks(b: Builder, members: Sequence[int], /, *, source: At, target: At) -> None:
    """Reduce-scatter: a block's sum goes round, each member adds its own, its owner comes last."""
    count = len(members)
    for ring in _rings(b, members):
        largest = max(ring.share(source(members[0], block)).nbytes for block in members)
        slots = {member: (b.stage(member, largest), b.stage(member, largest)) for member in members}
        for step in range(count - 1):
            for index, sender in enumerate(ring.members):
                receiver = ring.members[(index + 1) % count]
                block = ring.members[(index - step - 1) % count]
                mine = ring.share(source(receiver, block))
                slot = part_of(slots[receiver][step % 2], 0, mine.nbytes)
                before = part_of(slots[sender][(step - 1) % 2], 0, mine.nbytes)
                have = ring.share(source(sender, block)) if step == 0 else before
                theirs = fetch(b, have, slot, engine=ring.engine)
                last = step == count - 2
                end = ring.share(target(receiver, block)) if last else slot
                b.reduce((theirs, mine), end, last=last, lane=ring.reduce_lane(b))


def all_gather(b: Builder) -> None:
    """Blocks go round."""
    everyone = range(b.layout.count)
    keep_own(b, everyone)
    gather_blocks(b, everyone, source=b.layout.given, target=b.layout.got)


def reduce_scatter(b: Builder) -> None:
    """Sums go round."""
    reduce_blocks(b, range(b.layout.count), source=b.layout.given, target=b.layout.got)


def all_reduce(b: Builder) -> None:
    """Sums go round, then the results do."""
    everyone = range(b.layout.count)
    reduce_blocks(b, everyone, source=b.layout.given, target=b.layout.got)
    gather_blocks(b, everyone, source=b.layout.got, target=b.layout.got)


def _from_root(b: Builder) -> list[int]:
    """All positions, the root first."""
    return [(b.layout.root + step) % b.layout.count for step in range(b.layout.count)]


def broadcast(b: Builder) -> None:
    """A chain from the root; with chunks every link of it is busy at once."""
    layout = b.layout
    b.move(layout.whole_input(layout.root), layout.whole_output(layout.root))
    for ring in _rings(b, _from_root(b)):
        have = ring.share(layout.whole_input(layout.root))
        for position in ring.members[1:]:
            end = ring.share(layout.whole_output(position))
            b.move(have, end, engine=ring.engine)
            have = end


def reduce(b: Builder) -> None:
    """A chain to the root, each rank adding its own."""
    layout = b.layout
    for ring in _rings(b, _from_root(b)):
        far, *nearer = reversed(ring.members)
        have = ring.share(layout.whole_input(far))
        for position in nearer:
            mine = ring.share(layout.whole_input(position))
            slot = b.stage(position, mine.nbytes)
            theirs = fetch(b, have, slot, engine=ring.engine)
            last = position == layout.root
            have = ring.share(layout.whole_output(position)) if last else slot
            b.reduce((theirs, mine), have, last=last, lane=ring.reduce_lane(b))
