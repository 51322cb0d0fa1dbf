"""broadcast and reduce of large messages in two halves, so that the root's link does not carry all of it."""

from __future__ import annotations

from conccl.collectives.builder import Builder
from conccl.collectives.direct import reduce_blocks
from conccl.collectives.layout import part_of
from conccl.collectives.phases import own, rotated
from conccl.core.ops import Region


def scatter_all_gather(b: Builder) -> None:
    """broadcast: the root scatters its blocks, then all ranks but the root gather them."""
    layout = b.layout
    root, count = layout.root, layout.count
    b.move(b.layout.whole_input(root), b.layout.whole_output(root))
    for step in range(1, count):
        block = (root + step) % count
        b.move(layout.given(root, block), layout.got(block, block), engine=step - 1)
    b.batch_done()
    for step, sender, receiver in rotated(range(count)):
        if receiver != root:
            have = layout.given(root, root) if sender == root else layout.got(sender, sender)
            b.move(have, layout.got(receiver, sender), engine=step - 1)
    b.batch_done()


def reduce_scatter_gather(b: Builder) -> None:
    """reduce: every rank reduces one block, then the root gathers them."""
    layout = b.layout
    root, count = layout.root, layout.count
    reduced: dict[int, Region] = {}

    def target(position: int, block: int) -> Region:
        at, nbytes = layout.starts[0][block], layout.sizes[0][block]
        mine = part_of(b.layout.whole_output(root), at, nbytes)
        reduced[block] = mine if position == root else b.stage(position, nbytes)
        return reduced[block]

    reduce_blocks(b, range(count), holds=own, source=layout.given, target=target, last=True)
    for step in range(1, count):
        block = (root + step) % count
        at, nbytes = layout.starts[0][block], layout.sizes[0][block]
        b.move(reduced[block], part_of(b.layout.whole_output(root), at, nbytes), engine=step - 1)
    b.batch_done()
