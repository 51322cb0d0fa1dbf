"""The algorithms of every collective by name, and what each of them needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conccl.collectives import direct, dissemination, hierarchical, recursive, ring, rooted, staged
from conccl.collectives.builder import Builder
from conccl.collectives.layout import Layout, Place
from conccl.collectives.transfer import Command, Direction, Reach, Transfer
from conccl.core.errors import UnknownNameError
from conccl.core.ops import CollectiveKind as Kind
from conccl.core.plan import Engine

_NAMES = {
    "direct": "each pair in one step, one engine a peer, rotated order",
    "b2b": "as direct, but back to back on one engine with one flag: small messages",
    "bcst": "as direct, but a command writes to two peers: small to middling messages",
    "swap": "in place: a command exchanges the blocks of two ranks",
    "ring": "neighbours only: least bytes on every link, least staging, most steps",
    "recursive_doubling": "partners at powers of two: fewest steps",
    "recursive_halving": "partners at powers of two: fewest steps",
    "halving_doubling": "recursive halving, then doubling: few steps and least bytes",
    "bruck": "dissemination: fewest steps for any number of ranks",
    "one_shot": "everyone gets all inputs and reduces them: one step, small messages",
    "tree": "binomial tree: few steps, small messages and many ranks",
    "scatter_all_gather": "the root's link carries every byte about once: large messages",
    "reduce_scatter_gather": "the root's link carries every byte about once: large messages",
    "hierarchical": "inside nodes directly, between nodes by rail",
    "staged": "by way of host memory",
    "staged_one_shot": "by way of host memory, everyone reduces all inputs: small messages",
    "dissemination": "signals at doubled distances: few flags, many ranks",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """A way to carry out one collective."""

    kind: Kind
    name: str
    build: Callable[[Builder], None]
    reach: Reach = Reach.PEERS
    command: Command | None = None
    """What it asks of engines beside copies; such an algorithm is for copy engines and pushes."""
    places: frozenset[Place] = frozenset(Place)
    back_to_back: bool = False
    """One engine and one flag for all moves of a batch."""
    by_node: bool = False
    """Needs to know which ranks share a node (`Transfer.gpus_per_node`)."""

    @property
    def summary(self) -> str:
        """What it does, and for what it is good."""
        return _NAMES[self.name]

    def refusal(self, layout: Layout, transfer: Transfer, /) -> str | None:
        """Why it cannot carry this out, with the way out; None if it can."""
        if layout.place not in self.places:
            able = next(iter(self.places))
            return f"it does not run {_words(layout.place)}; run it {_words(able)}"
        if self.command is not None and transfer.engine is not Engine.COPY_ENGINE:
            return f"{self.command} is a command of copy engines, not of SMs; use Engine.COPY_ENGINE"
        if self.command is not None and transfer.direction is not Direction.PUSH:
            return f"{self.command} writes into peers; use Direction.PUSH"
        if self.by_node:
            size = transfer.gpus_per_node
            if size is None:
                return "it needs to know the nodes; give Transfer(gpus_per_node=...)"
            if layout.count % size:
                return f"{layout.count} ranks do not fill nodes of {size}; give a number that divides them"
        return None


def _words(place: Place) -> str:
    return place.replace("_", " ")


def algorithms(kind: Kind, /) -> Mapping[str, Algorithm]:
    """All algorithms of a collective by name, the plainest first."""
    return _TABLE[kind]


def algorithm(kind: Kind, name: str, /) -> Algorithm:
    """The algorithm of this name."""
    known = _TABLE[kind]
    if name not in known:
        raise UnknownNameError(kind=f"{kind} algorithm", name=name, known=known)
    return known[name]


def _rows(kind: Kind, builds: Mapping[str, Callable[[Builder], None]]) -> dict[str, Algorithm]:
    rows = {}
    for name, build in builds.items():
        rows[name] = Algorithm(
            kind=kind,
            name=name,
            build=build,
            reach=Reach.HOST if name.startswith("staged") else Reach.PEERS,
            command={"bcst": Command.MULTICAST, "swap": Command.SWAP}.get(name),
            places=_PLACES.get((kind, name), frozenset(Place)),
            back_to_back=name == "b2b",
            by_node=name == "hierarchical",
        )
    return rows


_PLACES = {
    (Kind.ALL_TO_ALL, "swap"): frozenset({Place.IN_PLACE}),
    (Kind.ALL_TO_ALL, "hierarchical"): frozenset({Place.OUT_OF_PLACE}),
    (Kind.ALL_TO_ALL, "staged"): frozenset({Place.OUT_OF_PLACE}),
}

_SEND = {"direct": direct.send, "staged": staged.send}

_TABLE: dict[Kind, dict[str, Algorithm]] = {
    kind: _rows(kind, builds)
    for kind, builds in {
        Kind.ALL_GATHER: {
            "direct": direct.all_gather,
            "b2b": direct.all_gather,
            "bcst": direct.bcst_all_gather,
            "ring": ring.all_gather,
            "recursive_doubling": recursive.all_gather,
            "bruck": recursive.bruck,
            "hierarchical": hierarchical.all_gather,
            "staged": staged.all_gather,
        },
        Kind.ALL_TO_ALL: {
            "direct": direct.all_to_all,
            "b2b": direct.all_to_all,
            "swap": direct.swap,
            "hierarchical": hierarchical.all_to_all,
            "staged": staged.all_to_all,
        },
        Kind.REDUCE_SCATTER: {
            "direct": direct.reduce_scatter,
            "b2b": direct.reduce_scatter,
            "ring": ring.reduce_scatter,
            "recursive_halving": recursive.reduce_scatter,
            "hierarchical": hierarchical.reduce_scatter,
            "staged": staged.reduce_scatter,
        },
        Kind.ALL_REDUCE: {
            "direct": direct.all_reduce,
            "b2b": direct.all_reduce,
            "one_shot": direct.one_shot,
            "ring": ring.all_reduce,
            "recursive_doubling": recursive.all_reduce,
            "halving_doubling": recursive.halving_doubling,
            "hierarchical": hierarchical.all_reduce,
            "staged": staged.all_reduce,
            "staged_one_shot": staged.one_shot,
        },
        Kind.BROADCAST: {
            "direct": direct.broadcast,
            "b2b": direct.broadcast,
            "bcst": direct.bcst_broadcast,
            "ring": ring.broadcast,
            "tree": recursive.broadcast,
            "scatter_all_gather": rooted.scatter_all_gather,
            "hierarchical": hierarchical.broadcast,
            "staged": staged.broadcast,
        },
        Kind.REDUCE: {
            "direct": direct.reduce,
            "b2b": direct.reduce,
            "ring": ring.reduce,
            "tree": recursive.reduce,
            "reduce_scatter_gather": rooted.reduce_scatter_gather,
            "staged": staged.reduce,
        },
        Kind.GATHER: {"direct": direct.gather, "b2b": direct.gather, "staged": staged.gather},
        Kind.SCATTER: {"direct": direct.scatter, "b2b": direct.scatter, "staged": staged.scatter},
        Kind.SEND: _SEND,
        Kind.RECV: _SEND,
        Kind.BARRIER: {
            "direct": direct.barrier,
            "dissemination": dissemination.barrier,
            "staged": direct.barrier,
        },
    }.items()
}
