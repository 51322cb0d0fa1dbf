"""Direct algorithms: every rank exchanges with every other in one step, each peer on an engine of its own.

The transfers of ConCCL's proof of concept (arXiv:2412.14335) and of NCCL's copy-engine collectives. With one
engine and one flag for all they are DMA-Latte's back-to-back variant; ``bcst`` and ``swap`` are its variants
for engines that write twice or exchange with one command (arXiv:2511.06605).
"""

from __future__ import annotations

from collections.abc import Sequence

from conccl.collectives.builder import Builder
from conccl.collectives.layout import Place
from conccl.collectives.phases import (
    At,
    Blocks,
    fetch,
    keep_own,
    own,
    rotated,
)
from conccl.core.ops import Region


def gather_blocks(
    b: Builder, members: Sequence[int], /, *, holds: Blocks, source: At, target: At, first_engine: int = 0
) -> None:
    """All-gather: the blocks that each member holds go to all others."""
    for step, sender, receiver in rotated(members):
        for block in holds(sender):
            b.move(source(sender, block), target(receiver, block), engine=first_engine + step - 1)
    b.batch_done()


def reduce_blocks(
    b: Builder,
    members: Sequence[int],
    /,
    *,
    holds: Blocks,
    source: At,
    target: At,
    last: bool,
    first_engine: int = 0,
) -> None:
    """Reduce-scatter: each member gets its blocks of all others and reduces them in the members' order."""
    sources = {
        (member, block): {member: source(member, block)} for member in members for block in holds(member)
    }
    for step, sender, receiver in rotated(members):
        for block in holds(receiver):
            theirs = source(sender, block)
            slot = theirs if b.reads_peers else b.stage(receiver, theirs.nbytes)
            sources[receiver, block][sender] = fetch(b, theirs, slot, engine=first_engine + step - 1)
    b.batch_done()
    for (member, block), by_sender in sources.items():
        b.reduce([by_sender[one] for one in members], target(member, block), last=last)
    b.batch_done()


def all_gather(b: Builder) -> None:
    """Each rank's block to all others."""
    everyone = range(b.layout.count)
    keep_own(b, everyone)
    gather_blocks(b, everyone, holds=own, source=b.layout.given, target=b.layout.got)


def all_to_all(b: Builder) -> None:
    """Each rank's block for a peer to that peer; in place by way of staging, or it would overwrite others."""
    layout = b.layout
    keep_own(b, range(layout.count))
    arrived: list[tuple[Region, Region]] = []
    for step, sender, receiver in rotated(range(layout.count)):
        target = layout.got(receiver, sender)
        if layout.place is Place.IN_PLACE:
            arrived.append((b.stage(receiver, target.nbytes), target))
            target = arrived[-1][0]
        b.move(layout.given(sender, receiver), target, engine=step - 1)
    b.batch_done()
    for staged, target in arrived:
        b.move(staged, target)


def swap(b: Builder) -> None:
    """all_to_all in place: one command exchanges the blocks of two ranks, half of them by each."""
    layout = b.layout
    for step, one, other in rotated(range(layout.count)):
        opposite = 2 * step == layout.count  # this step has each pair twice
        if 2 * step < layout.count or (opposite and one < other):
            b.swap(layout.given(one, other), layout.given(other, one), engine=step - 1)
    b.batch_done()


def reduce_scatter(b: Builder) -> None:
    """An all_to_all into staging, then one reduction a rank."""
    everyone = range(b.layout.count)
    reduce_blocks(b, everyone, holds=own, source=b.layout.given, target=b.layout.got, last=True)


def all_reduce(b: Builder) -> None:
    """reduce_scatter, then all_gather (two-shot): each byte is moved twice."""
    everyone = range(b.layout.count)
    reduce_blocks(b, everyone, holds=own, source=b.layout.given, target=b.layout.got, last=True)
    gather_blocks(b, everyone, holds=own, source=b.layout.got, target=b.layout.got)


def one_shot(b: Builder) -> None:
    """all_reduce in one step: every rank gets all inputs and reduces them itself."""
    everyone = range(b.layout.count)
    sources = {position: {position: b.layout.whole_input(position)} for position in everyone}
    for step, sender, receiver in rotated(everyone):
        theirs = b.layout.whole_input(sender)
        slot = theirs if b.reads_peers else b.stage(receiver, theirs.nbytes)
        sources[receiver][sender] = fetch(b, theirs, slot, engine=step - 1)
    b.batch_done()
    results = {}
    for position in everyone:
        target = b.layout.whole_output(position)
        if b.reads_peers and b.layout.place is Place.IN_PLACE:  # peers may still be reading it
            results[position] = target = b.stage(position, target.nbytes)
        b.reduce([sources[position][sender] for sender in everyone], target, last=True)
    for position, result in results.items():
        b.move(result, b.layout.whole_output(position))


def broadcast(b: Builder) -> None:
    """The root to each other."""
    root, count = b.layout.root, b.layout.count
    b.move(b.layout.whole_input(root), b.layout.whole_output(root))
    for step in range(1, count):
        b.move(b.layout.whole_input(root), b.layout.whole_output((root + step) % count), engine=step - 1)
    b.batch_done()


def reduce(b: Builder) -> None:
    """All inputs to the root, which reduces them in the ranks' order."""
    root, count = b.layout.root, b.layout.count
    sources = {root: b.layout.whole_input(root)}
    for step in range(1, count):
        sender = (root + step) % count
        theirs = b.layout.whole_input(sender)
        slot = theirs if b.reads_peers else b.stage(root, theirs.nbytes)
        sources[sender] = fetch(b, theirs, slot, engine=step - 1)
    b.batch_done()
    b.reduce([sources[position] for position in range(count)], b.layout.whole_output(root), last=True)


def gather(b: Builder) -> None:
    """Each rank's block to the root."""
    root, count = b.layout.root, b.layout.count
    keep_own(b, (root,))
    for step in range(1, count):
        sender = (root + step) % count
        b.move(b.layout.given(sender, sender), b.layout.got(root, sender), engine=step - 1)
    b.batch_done()


def scatter(b: Builder) -> None:
    """The root's block for each rank to that rank."""
    root, count = b.layout.root, b.layout.count
    keep_own(b, (root,))
    for step in range(1, count):
        receiver = (root + step) % count
        b.move(b.layout.given(root, receiver), b.layout.got(receiver, receiver), engine=step - 1)
    b.batch_done()


def send(b: Builder) -> None:
    """The sender's bytes to the receiver."""
    b.move(b.layout.whole_input(b.layout.root), b.layout.whole_output(b.layout.receiver))


def bcst_all_gather(b: Builder) -> None:
    """all_gather with commands that write to two peers each."""
    layout = b.layout
    keep_own(b, range(layout.count))
    for engine in range(0, layout.count - 1, 2):
        for sender in range(layout.count):
            peers = [
                (sender + step) % layout.count for step in (engine + 1, engine + 2) if step < layout.count
            ]
            targets = [layout.got(peer, sender) for peer in peers]
            b.multicast(layout.given(sender, sender), targets, engine=engine // 2)
    b.batch_done()


def bcst_broadcast(b: Builder) -> None:
    """Broadcast with commands that write to two peers each."""
    root, count = b.layout.root, b.layout.count
    b.move(b.layout.whole_input(root), b.layout.whole_output(root))
    for step in range(1, count, 2):
        peers = [(root + one) % count for one in (step, step + 1) if one < count]
        b.multicast(
            b.layout.whole_input(root), [b.layout.whole_output(peer) for peer in peers], engine=step // 2
        )
    b.batch_done()


def barrier(b: Builder) -> None:
    """Each rank waits for the entry of all others."""
    for position in range(b.layout.count):
        b.signal(position, [b.entered(one) for one in range(b.layout.count)], name="met")
