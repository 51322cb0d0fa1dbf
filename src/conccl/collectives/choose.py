"""The one entry: from a collective to a fragment of a plan, by a named algorithm or one that is chosen.

What a choice costs is not known here. `by_size` is a rule of thumb; callers that have a cost model pass a
`Chooser` made of it (`cheapest`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from conccl.collectives.builder import Builder
from conccl.collectives.catalogue import Algorithm, algorithm, algorithms
from conccl.collectives.layout import Layout, Place, layout_of
from conccl.collectives.transfer import Embedding, Flags, Reach, Transfer
from conccl.core.errors import InputError
from conccl.core.ops import Collective, CollectiveKind
from conccl.core.plan import Plan
from conccl.core.units import KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An algorithm and why it was taken."""

    algorithm: Algorithm
    reason: str


Chooser = Callable[[Layout, Transfer, Sequence[Algorithm]], Choice]
"""Picks one of the algorithms that can carry a layout out; there is always one."""


def fragment(
    collective: Collective,
    /,
    *,
    ranks: Sequence[int] | None = None,
    algorithm: str | None = None,
    root: int | None = None,
    split_nbytes: Sequence[int] | Sequence[Sequence[int]] | None = None,
    place: Place = Place.OUT_OF_PLACE,
    transfer: Transfer | None = None,
    embedding: Embedding | None = None,
    chooser: Chooser | None = None,
) -> Plan:
    """The moves and reductions that carry a collective out, as a fragment of a plan.

    ``ranks``, ``root`` and ``split_nbytes`` are those of `layout_of`. Without ``algorithm`` the chooser picks
    one (`by_size` unless given); the plan's label says which. Rank r's part begins with the signal
    ``NAME.enter.rR`` and is over with ``NAME.exit.rR``, NAME being the embedding's name.
    """
    embedding = embedding or Embedding()
    layout = layout_of(
        collective,
        ranks=ranks,
        root=root,
        split_nbytes=split_nbytes,
        place=place,
        windows=embedding.windows,
    )
    return fragment_of(layout, algorithm=algorithm, transfer=transfer, embedding=embedding, chooser=chooser)


def fragment_of(
    layout: Layout,
    /,
    *,
    algorithm: str | None = None,
    transfer: Transfer | None = None,
    embedding: Embedding | None = None,
    chooser: Chooser | None = None,
) -> Plan:
    """As `fragment`, from a layout: what the checker and the interpreter compare the fragment with."""
    transfer = transfer or Transfer()
    embedding = embedding or Embedding(windows=layout.windows)
    chosen = choose(layout, algorithm=algorithm, transfer=transfer, chooser=chooser).algorithm
    b = Builder(layout=layout, transfer=_adapted(chosen, transfer), embedding=embedding)
    if layout.count == 1 and layout.kind is not CollectiveKind.BARRIER:
        b.move(b.layout.whole_input(0), b.layout.whole_output(0))
    else:
        chosen.build(b)
    return b.plan(algorithm=chosen.name)


def choose(
    layout: Layout,
    /,
    *,
    algorithm: str | None = None,
    transfer: Transfer | None = None,
    chooser: Chooser | None = None,
) -> Choice:
    """The algorithm that `fragment` takes, and why."""
    transfer = transfer or Transfer()
    if algorithm is not None:
        return Choice(algorithm=_named(layout, algorithm, transfer), reason="asked for by name")
    able = [
        one
        for one in algorithms(layout.kind).values()
        if one.reach is transfer.reach
        and (one.command is None or one.command in transfer.commands)
        and one.refusal(layout, transfer) is None
    ]
    if not able:
        raise InputError(
            f"no {layout.kind} algorithm that reaches {transfer.reach} runs in place; run it out of place."
        )
    return (chooser or by_size)(layout, transfer, able)


def _named(layout: Layout, name: str, transfer: Transfer) -> Algorithm:
    found = algorithm(layout.kind, name)
    reason = found.refusal(layout, transfer)
    if reason is not None:
        raise InputError(f"{layout.kind} by {name!r} cannot be built: {reason}.")
    return found


def _adapted(chosen: Algorithm, transfer: Transfer) -> Transfer:
    """The transfer with what makes the algorithm what it is."""
    if chosen.back_to_back:
        return replace(transfer, engines=1, flags=Flags.PER_LANE)
    if chosen.reach is Reach.HOST and transfer.engines is None:
        return replace(transfer, engines=2)  # one for each direction of the host link
    return transfer


def cheapest(cost: Callable[[Plan], float], /) -> Chooser:
    """A chooser that builds what every algorithm would do and takes the one that costs least."""

    def chooser(layout: Layout, transfer: Transfer, able: Sequence[Algorithm]) -> Choice:
        costs = [cost(fragment_of(layout, algorithm=one.name, transfer=transfer)) for one in able]
        least = min(range(len(able)), key=costs.__getitem__)
        return Choice(algorithm=able[least], reason=f"costs least of {len(able)}: {costs[least]:.6g}")

    return chooser


_SMALL = {CollectiveKind.ALL_GATHER: 128 * KIB, CollectiveKind.ALL_TO_ALL: 32 * KIB}
"""Up to here moves back to back are fastest (DMA-Latte's table for 8 MI300X, arXiv:2511.06605)."""
_MIDDLING = {CollectiveKind.ALL_GATHER: 512 * KIB, CollectiveKind.ALL_TO_ALL: 2 * MIB}
"""Up to here commands that write twice or exchange are, where engines have them (same source)."""
_ONE_SHOT = MIB
"""Up to here all_reduce is done in one shot (MORI's threshold on MI300X)."""
_TWO_HALVES = MIB
"""From here a root's link is worth sparing. A guess: a step more for most of the root's bytes less."""


def by_size(layout: Layout, transfer: Transfer, able: Sequence[Algorithm], /) -> Choice:
    """A rule of thumb with published thresholds, for when no cost model is at hand."""
    names = {one.name: one for one in able}
    for name, applies, reason in _rules(layout, transfer):
        if applies and name in names:
            return Choice(algorithm=names[name], reason=reason)
    return Choice(algorithm=able[0], reason="the plainest: every pair in one step")


def _rules(layout: Layout, transfer: Transfer) -> list[tuple[str, bool, str]]:
    kind, nbytes = layout.kind, layout.collective.nbytes
    small = nbytes <= _SMALL.get(kind, 0)
    middling = nbytes <= _MIDDLING.get(kind, 0)
    one_shot = nbytes <= _ONE_SHOT
    halves = nbytes >= _TWO_HALVES and layout.count > 2
    several = transfer.gpus_per_node is not None and transfer.gpus_per_node < layout.count
    return [
        ("hierarchical", several, "several nodes: each byte crosses a rail once"),
        ("one_shot", one_shot, "small: one step instead of two"),
        ("staged_one_shot", one_shot, "small: one step instead of two"),
        ("b2b", small, "small: one flag instead of one for each peer"),
        ("bcst", middling, "middling: half the commands"),
        ("swap", middling, "middling: half the commands, and no staging"),
        ("scatter_all_gather", halves, "large: the root's link carries every byte about once"),
        ("reduce_scatter_gather", halves, "large: the root's link carries every byte about once"),
    ]
