"""Algorithms by way of host memory: every rank copies out what others want, and in what it wants.

What is left where ranks cannot reach each other's memory, and the only copies that an H200 makes without SMs
on one GPU. Each byte leaves its GPU once, whoever wants it. Where host memory is bounded
(`Transfer.host_staging_nbytes`) messages pass in turns, two of them in flight, so that copying out the one
hides under copying in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from conccl.collectives.builder import Builder
from conccl.collectives.layout import part_of
from conccl.collectives.phases import At, keep_own
from conccl.core.errors import InputError
from conccl.core.ops import Memory, Region

_GRAIN = 16
"""Staging is given out, and messages are cut, in multiples of this: the widest element type and more."""

OUT, IN = 0, 1
"""Engines: GPUs have at least one for each direction of the host link."""

Parcels = Mapping[tuple[int, int], Region]
"""(sender, block) -> what the sender puts into host memory."""
Turn = Mapping[tuple[int, int], tuple[int, Region]]
"""(sender, block) -> where in its parcel the piece of this turn begins, and the piece in host memory."""


def turns(b: Builder, parcels: Parcels, /) -> Iterator[Turn]:
    """Put parcels into host memory, turn by turn; list what reads them before you take the next."""
    parcels = {key: region for key, region in parcels.items() if region.nbytes}
    pieces = _pieces(b, parcels)
    slots: dict[tuple[int, int], tuple[Region, ...]] = {
        key: tuple(
            b.stage(key[0], piece, memory=Memory.HOST)
            for _ in range(1 if piece >= parcels[key].nbytes else 2)
        )
        for key, piece in pieces.items()
    }
    number = 0
    while True:
        turn: dict[tuple[int, int], tuple[int, Region]] = {}
        for key, region in parcels.items():
            at = number * pieces[key]
            if at < region.nbytes:
                nbytes = min(pieces[key], region.nbytes - at)
                slot = part_of(slots[key][number % len(slots[key])], 0, nbytes)
                b.move(part_of(region, at, nbytes), slot, engine=OUT, by=region.rank)
                turn[key] = (at, slot)
        if not turn:
            return
        b.batch_done()
        yield turn
        number += 1


def _pieces(b: Builder, parcels: Parcels) -> dict[tuple[int, int], int]:
    """Bytes of each parcel that pass in one turn: all, or so many that two turns of a sender's fit."""
    limit = b.transfer.host_staging_nbytes
    sizes: dict[int, list[int]] = {}
    for (sender, _), region in parcels.items():
        sizes.setdefault(sender, []).append(-(-region.nbytes // _GRAIN) * _GRAIN)
    turn = {}
    for sender, padded in sizes.items():
        turn[sender] = max(padded)
        if limit is not None and sum(padded) > limit:
            turn[sender] = limit // (2 * len(padded)) // _GRAIN * _GRAIN
            if turn[sender] == 0:
                raise InputError(
                    f"host staging of {limit} bytes is too small for {len(padded)} messages in two turns;"
                    f" give at least {2 * _GRAIN * len(padded)}."
                )
    return {key: min(turn[key[0]], region.nbytes) for key, region in parcels.items()}


def _everyone(b: Builder) -> range:
    return range(b.layout.count)


def _others(b: Builder, position: int) -> list[int]:
    """All other positions, the next first."""
    return [(position + step) % b.layout.count for step in range(1, b.layout.count)]


def _collect(b: Builder, parcels: Parcels, wanted: Callable[[int], Mapping[tuple[int, int], Region]]) -> None:
    """Every position copies in what it wants: parcel -> where to."""
    for turn in turns(b, parcels):
        for receiver in _everyone(b):
            for key, target in wanted(receiver).items():
                if key in turn:
                    at, have = turn[key]
                    end = part_of(target, at, have.nbytes)
                    b.move(have, end, engine=IN, by=b.layout.ranks[receiver])
        b.batch_done()


def _reduce(
    b: Builder,
    parcels: Parcels,
    wanted: Callable[[int], Mapping[int, tuple[int, int]]],
    mine: Callable[[int], Region],
    target: Callable[[int], Region],
) -> None:
    """Every position that wants parcels (sender -> which) reduces them and its own, in the ranks' order.

    SMs that read peers read the parcels in host memory; otherwise engines copy them in first.
    """
    slots: dict[tuple[int, int], Region] = {}
    for turn in turns(b, parcels):
        for receiver in _everyone(b):
            sources: dict[int, Region] = {}
            for sender, key in wanted(receiver).items():
                if key in turn:
                    at, have = turn[key]
                    slot = have
                    if not b.reads_peers:
                        if (receiver, sender) not in slots:  # the first turn's pieces are the largest
                            slots[receiver, sender] = b.stage(receiver, have.nbytes)
                        slot = part_of(slots[receiver, sender], 0, have.nbytes)
                        b.move(have, slot, engine=IN, by=b.layout.ranks[receiver])
                    sources[sender] = slot
            if sources:
                sources[receiver] = part_of(mine(receiver), at, have.nbytes)
                end = part_of(target(receiver), at, have.nbytes)
                b.reduce([sources[one] for one in sorted(sources)], end, last=True)
        b.batch_done()


def _pairs(b: Builder) -> dict[tuple[int, int], Region]:
    """What each position has for each other, first what is asked for first."""
    return {
        (sender, receiver): b.layout.given(sender, receiver)
        for sender in _everyone(b)
        for receiver in reversed(_others(b, sender))
    }


def _gather(b: Builder, source: At) -> None:
    parcels = {(one, one): source(one, one) for one in _everyone(b)}
    _collect(b, parcels, lambda i: {(one, one): b.layout.got(i, one) for one in _others(b, i)})


def all_gather(b: Builder) -> None:
    """Out once, in by everyone."""
    keep_own(b, _everyone(b))
    _gather(b, b.layout.given)


def all_to_all(b: Builder) -> None:
    """Out for each peer, in from each peer."""
    keep_own(b, _everyone(b))
    _collect(b, _pairs(b), lambda i: {(one, i): b.layout.got(i, one) for one in _others(b, i)})


def reduce_scatter(b: Builder) -> None:
    """An all_to_all into staging, and reductions."""
    layout = b.layout
    _reduce(
        b,
        _pairs(b),
        lambda i: {one: (one, i) for one in _others(b, i)},
        mine=lambda i: layout.given(i, i),
        target=lambda i: layout.got(i, i),
    )


def all_reduce(b: Builder) -> None:
    """reduce_scatter, then all_gather."""
    reduce_scatter(b)
    _gather(b, b.layout.got)


def one_shot(b: Builder) -> None:
    """all_reduce in one step: out once, and every rank reduces what all have put out."""
    _reduce(
        b,
        {(one, one): b.layout.whole_input(one) for one in _everyone(b)},
        lambda i: {one: (one, one) for one in _others(b, i)},
        mine=b.layout.whole_input,
        target=b.layout.whole_output,
    )


def broadcast(b: Builder) -> None:
    """Out once by the root, in by everyone else."""
    root = b.layout.root
    b.move(b.layout.whole_input(root), b.layout.whole_output(root))
    parcels = {(root, root): b.layout.whole_input(root)}
    _collect(b, parcels, lambda i: {} if i == root else {(root, root): b.layout.whole_output(i)})


def reduce(b: Builder) -> None:
    """Out by everyone, in by the root."""
    root = b.layout.root
    _reduce(
        b,
        {(one, one): b.layout.whole_input(one) for one in _others(b, root)},
        lambda i: {one: (one, one) for one in _others(b, root)} if i == root else {},
        mine=b.layout.whole_input,
        target=b.layout.whole_output,
    )


def gather(b: Builder) -> None:
    """Out by everyone, in by the root."""
    root = b.layout.root
    keep_own(b, (root,))
    parcels = {(one, one): b.layout.given(one, one) for one in _others(b, root)}
    _collect(
        b, parcels, lambda i: {(one, one): b.layout.got(i, one) for one in _others(b, i)} if i == root else {}
    )


def scatter(b: Builder) -> None:
    """Out by the root, in by everyone else."""
    root = b.layout.root
    keep_own(b, (root,))
    parcels = {(root, one): b.layout.given(root, one) for one in _others(b, root)}
    _collect(b, parcels, lambda i: {(root, i): b.layout.got(i, i)})


def send(b: Builder) -> None:
    """Out by the sender, in by the receiver."""
    sender, receiver = b.layout.root, b.layout.receiver
    parcels = {(sender, sender): b.layout.whole_input(sender)}
    _collect(b, parcels, lambda i: {(sender, sender): b.layout.whole_output(i)} if i == receiver else {})
