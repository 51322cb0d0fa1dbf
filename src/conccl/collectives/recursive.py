"""Recursive algorithms: as many steps as the rank count has binary digits, partners at powers of two.

Where the count is no power of two, pairs are folded: of the first pairs the even rank hands its data to the
odd one and gets the result from it at the end, so that a power of two takes part (Rabenseifner; MPICH). The
all-gather by dissemination (`bruck`) needs no folding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conccl.collectives.builder import Builder
from conccl.collectives.layout import Place, part_of
from conccl.collectives.phases import beside_moves, fetch, in_order, keep_own
from conccl.core.ops import Region


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """Which position takes part for which blocks."""

    positions: tuple[int, ...]
    """The positions that take part, a power of two of them."""
    starts: tuple[int, ...]
    """Participant k stands for the positions [starts[k], starts[k + 1])."""
    folded: tuple[int, ...]
    """Positions that hand over to the one after them."""


def folding(count: int, /) -> Folding:
    """The largest power of two of positions, those before an odd one of the first pairs folded into it."""
    size = 1 << (count.bit_length() - 1)
    pairs = count - size
    positions = (*range(1, 2 * pairs, 2), *range(2 * pairs, count))
    starts = (*range(0, 2 * pairs, 2), *range(2 * pairs, count + 1))
    return Folding(positions=positions, starts=starts, folded=tuple(range(0, 2 * pairs, 2)))


def gather_ranges(b: Builder, fold: Folding, /, *, have: Callable[[int, int, int], Region]) -> None:
    """All-gather among participants: what each holds doubles in every step.

    ``have(position, first, stop)`` is where a position has blocks [first, stop), and where it gets them.
    """
    size = len(fold.positions)
    distance = 1
    while distance < size:
        for one in range(size):
            base = one // distance * distance
            first, stop = fold.starts[base], fold.starts[base + distance]
            partner = fold.positions[one ^ distance]
            b.move(have(fold.positions[one], first, stop), have(partner, first, stop))
        distance *= 2


def reduce_ranges(b: Builder, fold: Folding, /, *, target: Callable[[int, int], Region]) -> None:
    """Reduce-scatter of whole inputs among participants: the range each works on halves in every step.

    ``target(position, block)`` is where a participant's reduced block goes.
    """
    starts = b.layout.starts[0]
    size = len(fold.positions)
    work = {one: (_folded_input(b, position), 0) for one, position in enumerate(fold.positions)}
    distance = size // 2
    while distance:
        arrived: dict[int, tuple[Region, int]] = {}
        for one, position in enumerate(fold.positions):
            base = one // distance * distance
            first, stop = fold.starts[base], fold.starts[base + distance]
            mine = _range(work[one], starts[first], starts[stop])
            peer = _range(work[one ^ distance], starts[first], starts[stop])
            slot = b.stage(position, mine.nbytes)
            theirs = fetch(b, peer, slot)
            arrived[one] = (slot, starts[first])
            swap = bool(one & distance)
            if distance > 1:
                b.reduce(in_order(mine, theirs, swap=swap), slot, last=False, lane=beside_moves(b))
                continue
            for block in range(first, stop):
                at, nbytes = starts[block] - starts[first], starts[block + 1] - starts[block]
                both = in_order(part_of(mine, at, nbytes), part_of(theirs, at, nbytes), swap=swap)
                b.reduce(both, target(position, block), last=True, lane=beside_moves(b))
        work = arrived
        distance //= 2


def _range(work: tuple[Region, int], start: int, stop: int) -> Region:
    region, begins_at = work
    return part_of(region, start - begins_at, stop - start)


def _folded_input(b: Builder, position: int) -> Region:
    """A participant's input, the one folded into it added."""
    mine = b.layout.whole_input(position)
    if position not in {one + 1 for one in folding(b.layout.count).folded}:
        return mine
    slot = b.stage(position, mine.nbytes)
    theirs = fetch(b, b.layout.whole_input(position - 1), slot)
    b.reduce((theirs, mine), slot, last=False, lane=beside_moves(b))
    return slot


def all_gather(b: Builder) -> None:
    """Recursive doubling; folded ranks hand over their block first and get all others at the end."""
    layout = b.layout
    fold = folding(layout.count)
    everyone = range(layout.count)
    keep_own(b, everyone)

    def have(position: int, first: int, stop: int) -> Region:
        if (first, stop) == (position, position + 1):
            return layout.got(position, position)
        starts = layout.starts[0]
        return layout.output(position, starts[first], starts[stop] - starts[first])

    for position in fold.folded:
        b.move(layout.given(position, position), layout.got(position + 1, position))
    gather_ranges(b, fold, have=have)
    for position in fold.folded:
        for first, stop in ((0, position), (position + 1, layout.count)):
            b.move(have(position + 1, first, stop), have(position, first, stop))


def bruck(b: Builder) -> None:
    """all_gather by dissemination: in each step a rank gets what the one at a doubled distance has."""
    layout = b.layout
    count = layout.count
    keep_own(b, range(count))
    distance = 1
    while distance < count:
        for receiver in range(count):
            sender = (receiver + distance) % count
            first, blocks = sender, min(distance, count - distance)
            for begin, end in ((first, min(first + blocks, count)), (0, first + blocks - count)):
                if end > begin:
                    at, nbytes = layout.starts[0][begin], layout.starts[0][end] - layout.starts[0][begin]
                    b.move(layout.output(sender, at, nbytes), layout.output(receiver, at, nbytes))
        distance *= 2


def reduce_scatter(b: Builder) -> None:
    """Recursive halving; folded ranks get their block at the end."""
    layout = b.layout
    fold = folding(layout.count)
    kept: dict[int, Region] = {}

    def target(position: int, block: int) -> Region:
        if block == position:
            return layout.got(position, position)
        kept[block] = b.stage(position, layout.sizes[0][block])
        return kept[block]

    reduce_ranges(b, fold, target=target)
    for position in fold.folded:
        b.move(kept[position], layout.got(position, position))


def all_reduce(b: Builder) -> None:
    """Recursive doubling: partners exchange all that they have and both add; few steps, many bytes."""
    fold = folding(b.layout.count)
    size = len(fold.positions)
    work = [_folded_input(b, position) for position in fold.positions]
    distance = 1
    while distance < size:
        last = 2 * distance == size
        slots = [b.stage(position, work[one].nbytes) for one, position in enumerate(fold.positions)]
        peers = [fetch(b, work[one ^ distance], slots[one]) for one in range(size)]
        for one, position in enumerate(fold.positions):
            straight = last and not (b.reads_peers and b.layout.place is Place.IN_PLACE)
            end = b.layout.whole_output(position) if straight else slots[one]
            b.reduce(
                in_order(work[one], peers[one], swap=bool(one & distance)),
                end,
                last=last,
                lane=beside_moves(b),
            )
        work = slots
        distance *= 2
    if b.reads_peers and b.layout.place is Place.IN_PLACE:  # partners may have been reading the input
        for one, position in enumerate(fold.positions):
            b.move(work[one], b.layout.whole_output(position))
    _unfold(b, fold)


def halving_doubling(b: Builder) -> None:
    """all_reduce as recursive halving, then recursive doubling: few steps and few bytes (Rabenseifner)."""
    fold = folding(b.layout.count)
    starts = b.layout.starts[0]

    def have(position: int, first: int, stop: int) -> Region:
        return b.layout.output(position, starts[first], starts[stop] - starts[first])

    reduce_ranges(b, fold, target=lambda position, block: have(position, block, block + 1))
    gather_ranges(b, fold, have=have)
    _unfold(b, fold)


def _unfold(b: Builder, fold: Folding) -> None:
    for position in fold.folded:
        b.move(b.layout.whole_output(position + 1), b.layout.whole_output(position))


def broadcast(b: Builder) -> None:
    """A binomial tree: the ranks that have it double in every step."""
    root, count = b.layout.root, b.layout.count
    b.move(b.layout.whole_input(root), b.layout.whole_output(root))
    distance = 1
    while distance < count:
        for step in range(min(distance, count - distance)):
            sender, receiver = (root + step) % count, (root + step + distance) % count
            have = b.layout.whole_input(root) if step == 0 else b.layout.whole_output(sender)
            b.move(have, b.layout.whole_output(receiver))
        distance *= 2


def reduce(b: Builder) -> None:
    """A binomial tree: the ranks that still hold a sum halve in every step."""
    root, count = b.layout.root, b.layout.count
    work = {step: b.layout.whole_input((root + step) % count) for step in range(count)}
    distance = 1
    while distance < count:
        last = 2 * distance >= count
        for step in range(0, count - distance, 2 * distance):
            position = (root + step) % count
            slot = b.stage(position, work[step].nbytes)
            theirs = fetch(b, work[step + distance], slot)
            end = b.layout.whole_output(root) if last and step == 0 else slot
            b.reduce((work[step], theirs), end, last=last, lane=beside_moves(b))
            work[step] = end
        distance *= 2
