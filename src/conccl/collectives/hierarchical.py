"""Algorithms for several nodes: inside a node directly, between nodes by rail.

A rail joins the ranks that stand at the same place of their nodes, so every rank uses its own share of the
network and no byte crosses it that its node already has. Rails have engines (lanes) of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conccl.collectives.builder import Builder
from conccl.collectives.direct import gather_blocks, reduce_blocks
from conccl.collectives.layout import divide, part_of
from conccl.collectives.phases import keep_own, own, rotated
from conccl.core.ops import Region


def _size(b: Builder) -> int:
    """Ranks of a node."""
    return b.transfer.gpus_per_node or b.layout.count


def _nodes(b: Builder) -> Iterator[range]:
    """The positions of each node."""
    return (range(first, first + _size(b)) for first in range(0, b.layout.count, _size(b)))


def _rails(b: Builder) -> Iterator[range]:
    """The positions that each rail joins."""
    return (range(place, b.layout.count, _size(b)) for place in range(_size(b)))


def _same_rail(b: Builder, position: int) -> Sequence[int]:
    """Blocks of the positions on this one's rail, its own first."""
    others = range(position % _size(b), b.layout.count, _size(b))
    return (position, *(one for one in others if one != position))


def all_gather(b: Builder) -> None:
    """By rail, then each node shares what its rails brought."""
    layout = b.layout
    keep_own(b, range(layout.count))
    for rail in _rails(b):
        gather_blocks(b, rail, holds=own, source=layout.given, target=layout.got, first_engine=_size(b) - 1)

    def source(position: int, block: int) -> Region:
        return layout.given(block, block) if block == position else layout.got(position, block)

    for node in _nodes(b):
        gather_blocks(b, node, holds=lambda one: _same_rail(b, one), source=source, target=layout.got)


def reduce_scatter(b: Builder) -> None:
    """Each node reduces for its rails, then the rails reduce what the nodes have."""
    partial = _reduce_in_nodes(b)
    _reduce_on_rails(b, partial)


def all_reduce(b: Builder) -> None:
    """reduce_scatter in the node, all_reduce by rail, all_gather in the node."""
    layout = b.layout
    _reduce_on_rails(b, _reduce_in_nodes(b))
    for rail in _rails(b):
        gather_blocks(b, rail, holds=own, source=layout.got, target=layout.got, first_engine=_size(b) - 1)
    for node in _nodes(b):
        gather_blocks(b, node, holds=lambda one: _same_rail(b, one), source=layout.got, target=layout.got)


def _reduce_in_nodes(b: Builder) -> dict[tuple[int, int], Region]:
    """(position, block) -> the node's sum of each block of the position's rail."""
    partial: dict[tuple[int, int], Region] = {}

    def target(position: int, block: int) -> Region:
        partial[position, block] = b.stage(position, b.layout.sizes[0][block])
        return partial[position, block]

    for node in _nodes(b):
        reduce_blocks(
            b, node, holds=lambda one: _same_rail(b, one), source=b.layout.given, target=target, last=False
        )
    return partial


def _reduce_on_rails(b: Builder, partial: dict[tuple[int, int], Region]) -> None:
    for rail in _rails(b):
        reduce_blocks(
            b,
            rail,
            holds=own,
            source=lambda position, block: partial[position, block],
            target=b.layout.got,
            last=True,
            first_engine=_size(b) - 1,
        )


def all_to_all(b: Builder) -> None:
    """What is for a node goes there by rail in one piece and is handed out inside it."""
    layout, size = b.layout, _size(b)
    keep_own(b, range(layout.count))
    for node in _nodes(b):
        for step, sender, receiver in rotated(node):
            b.move(layout.given(sender, receiver), layout.got(receiver, sender), engine=step - 1)
    b.batch_done()
    for rail in _rails(b):
        for step, sender, relay in rotated(rail):
            first = relay // size * size
            start, stop = layout.starts[sender][first], layout.starts[sender][first + size]
            bundle = b.stage(relay, stop - start)
            b.move(layout.input(sender, start, stop - start), bundle, engine=size - 1 + step - 1)
            for place in range(size):
                receiver = first + (relay + place) % size  # its own block first, then rotated
                at = layout.starts[sender][receiver] - start
                piece = part_of(bundle, at, layout.sizes[sender][receiver])
                b.move(piece, layout.got(receiver, sender), engine=max(0, place - 1))
    b.batch_done()


def broadcast(b: Builder) -> None:
    """The root's node scatters, each of its ranks sends its piece by rail, then every node gathers."""
    root, size = b.layout.root, _size(b)
    bounds = divide(b.layout.collective.nbytes, size, 1)
    first = root // size * size

    def piece(position: int, place: int) -> Region:
        whole = b.layout.whole_input(root) if position == root else b.layout.whole_output(position)
        return part_of(whole, bounds[place], bounds[place + 1] - bounds[place])

    b.move(b.layout.whole_input(root), b.layout.whole_output(root))
    for step in range(1, size):
        place = (root + step) % size
        b.move(piece(root, place), piece(first + place, place), engine=step - 1)
    for rail in _rails(b):
        sender = first + rail[0]
        for step in range(1, len(rail)):
            receiver = rail[(sender // size + step) % len(rail)]
            b.move(piece(sender, rail[0]), piece(receiver, rail[0]), engine=size - 1 + step - 1)
    for node in _nodes(b):
        for step, sender, receiver in rotated(node):
            if receiver != root:
                b.move(piece(sender, sender % size), piece(receiver, sender % size), engine=step - 1)
    b.batch_done()
