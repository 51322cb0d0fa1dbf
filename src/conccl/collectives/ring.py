"""Ring algorithms: each rank exchanges with its neighbours only, block after block.

Every link carries the least bytes that the collective allows, in as many dependent steps as there are peers;
staging is two blocks whatever the number of ranks. Chunks keep a chain (broadcast, reduce) busy end to end.
"""

from __future__ import annotations

from collections.abc import Sequence

from conccl.collectives.builder import Builder
from conccl.collectives.phases import At, fetch, keep_own, part_of


def gather_blocks(b: Builder, members: Sequence[int], /, *, source: At, target: At) -> None:
    """All-gather: in each step every member passes on the block that reached it in the step before."""
    count = len(members)
    for step in range(count - 1):
        for index, sender in enumerate(members):
            block = members[(index - step) % count]
            have = source(sender, block) if step == 0 else target(sender, block)
            b.move(have, target(members[(index + 1) % count], block))


def reduce_blocks(b: Builder, members: Sequence[int], /, *, source: At, target: At) -> None:
    """Reduce-scatter: a block's sum goes round, each member adds its own, its owner comes last."""
    count = len(members)
    largest = max(source(members[0], block).nbytes for block in members)
    slots = {member: (b.stage(member, largest), b.stage(member, largest)) for member in members}
    for step in range(count - 1):
        for index, sender in enumerate(members):
            receiver = members[(index + 1) % count]
            block = members[(index - step - 1) % count]
            mine = source(receiver, block)
            slot = part_of(slots[receiver][step % 2], 0, mine.nbytes)
            before = part_of(slots[sender][(step - 1) % 2], 0, mine.nbytes)
            theirs = fetch(b, source(sender, block) if step == 0 else before, slot)
            last = step == count - 2
            b.reduce((theirs, mine), target(receiver, block) if last else slot, last=last)


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


def broadcast(b: Builder) -> None:
    """A chain from the root; with chunks every link of it is busy at once."""
    root, count = b.layout.root, b.layout.count
    b.move(b.layout.whole_input(root), b.layout.whole_output(root))
    have = b.layout.whole_input(root)
    for step in range(1, count):
        target = b.layout.whole_output((root + step) % count)
        b.move(have, target)
        have = target


def reduce(b: Builder) -> None:
    """A chain to the root, each rank adding its own."""
    root, count = b.layout.root, b.layout.count
    have = b.layout.whole_input((root - 1) % count)
    for step in range(2, count + 1):
        position = (root - step) % count
        slot = b.stage(position, have.nbytes)
        theirs = fetch(b, have, slot)
        last = position == root
        have = b.layout.whole_output(root) if last else slot
        b.reduce((theirs, b.layout.whole_input(position)), have, last=last)
