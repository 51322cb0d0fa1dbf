"""The memory and links of all GPUs as shared resources, and the ways that bytes take over them."""

from __future__ import annotations

from collections.abc import Callable

from conccl.core.hardware import Link, System, Topology
from conccl.core.kinds import CollectiveKind, Memory
from conccl.core.ops import Collective
from conccl.sim.shares import Resource

Way = tuple[tuple[Resource, float], ...]
"""What a byte uses on its way, and how much of each."""

Image = Callable[[int], int]
"""Rank -> the rank that stands for it; itself where nothing is folded."""

Distance = Callable[[int, int], int]
"""Which of a GPU's links leads from one rank to another; the same number for links that do the same."""


STRAIGHT = frozenset({CollectiveKind.ALL_TO_ALL, CollectiveKind.GATHER, CollectiveKind.SCATTER})
"""Collectives in which bytes go from their sender to their receiver and not around."""


class Fabric:
    """HBM, L2 and links of every rank that stands for others, made when first used."""

    def __init__(self, *, system: System, image: Image, distance: Distance) -> None:
        self._system = system
        self._image = image
        self._distance = distance
        self._resources: dict[tuple[str, int, int], Resource] = {}

    def hbm(self, rank: int, /) -> Resource:
        """Memory bandwidth of a GPU, as far as kernels reach it."""
        device = self._system.device
        return self._resource("hbm", rank, bandwidth=device.hbm_bandwidth * device.hbm_efficiency)

    def l2(self, rank: int, /) -> Resource:
        """Bandwidth between L2 and SMs."""
        return self._resource("l2", rank, bandwidth=self._system.device.l2_bandwidth)

    def between(self, source: int, destination: int, /) -> Way:
        """From one GPU's memory to another's, or within one."""
        if source == destination:
            return ((self.hbm(source), 2.0),)
        return (
            (self.hbm(source), 1.0),
            (self.hbm(destination), 1.0),
            *self.link(source, destination),
        )

    def link(self, source: int, destination: int, /) -> Way:
        """The links from one GPU to another."""
        system, device = self._system, self._system.device
        if source // system.gpus_per_node != destination // system.gpus_per_node:
            return _joined(
                self._out("rail", source, _rail(system)), self._in("rail", destination, _rail(system))
            )
        if device.peer_topology is Topology.HOST:
            link = device.host_link
            return _joined(self._out("host", source, link), self._in("host", destination, link))
        link = device.peer_link
        way = _joined(self._out("peer", source, link), self._in("peer", destination, link))
        if device.peer_topology in (Topology.MESH, Topology.RING):
            single = self._resource(
                "single",
                source,
                bandwidth=link.out_bandwidth * link.efficiency / device.peer_links,
                key=self._distance(source, destination),
            )
            way = (*way, (single, 1.0))
        return way

    def latency_ns(self, source: int, destination: int, /) -> int:
        """Until the first byte arrives."""
        system = self._system
        if source == destination:
            return 0
        if source // system.gpus_per_node != destination // system.gpus_per_node:
            return _rail(system).latency_ns
        if system.device.peer_topology is Topology.HOST:
            return 2 * system.device.host_link.latency_ns
        return system.device.peer_link.latency_ns

    def copy(self, rank: int, /, *, source: Memory, destination: Memory) -> Way:
        """A copy of one GPU, whose other end has no rank."""
        ends = (source, destination)
        if Memory.HOST in ends:
            link, name = self._system.device.host_link, "host"
        elif Memory.PEER in ends:
            link, name = self._system.device.peer_link, "peer"
        else:
            return ((self.hbm(rank), 2.0),)
        way: list[tuple[Resource, float]] = []
        if source is Memory.DEVICE:
            way.extend(((self.hbm(rank), 1.0), *self._out(name, rank, link)))
        if destination is Memory.DEVICE:
            way.extend(((self.hbm(rank), 1.0), *self._in(name, rank, link)))
        return tuple(way)

    def exchange(self, op: Collective, /, *, rank: int) -> Way:
        """What a byte that a GPU sends in a collective uses, as many coming in as going out.

        Over several nodes rings cross from node to node once, each on a rail of its own, and what goes
        straight to its receiver takes the rail as often as that is elsewhere (as `costs.collective` has it).
        """
        system, device = self._system, self._system.device
        host = device.peer_topology is Topology.HOST
        link, name = (device.host_link, "host") if host else (device.peer_link, "peer")
        inside = _joined(self._out(name, rank, link), self._in(name, rank, link))
        together = min(op.ranks_per_node or system.gpus_per_node, op.ranks)
        if op.ranks <= together:
            return inside
        rail = _joined(self._out("rail", rank, _rail(system)), self._in("rail", rank, _rail(system)))
        if op.kind in STRAIGHT:
            outside = (op.ranks - together) / (op.ranks - 1)
            return (*_times(inside, 1 - outside), *_times(rail, outside))
        if together == 1:
            return rail
        return (*inside, *_times(rail, 1 / together))

    def _out(self, name: str, rank: int, link: Link) -> Way:
        return (
            (self._resource(f"{name} out", rank, bandwidth=link.out_bandwidth * link.efficiency), 1.0),
            (self._resource(f"{name} both", rank, bandwidth=link.both_bandwidth * link.efficiency), 1.0),
        )

    def _in(self, name: str, rank: int, link: Link) -> Way:
        return (
            (self._resource(f"{name} in", rank, bandwidth=link.in_bandwidth * link.efficiency), 1.0),
            (self._resource(f"{name} both", rank, bandwidth=link.both_bandwidth * link.efficiency), 1.0),
        )

    def _resource(self, name: str, rank: int, *, bandwidth: float, key: int = 0) -> Resource:
        place = (name, self._image(rank), key)
        if place not in self._resources:
            self._resources[place] = Resource(name=name, capacity=bandwidth / 1e9)
        return self._resources[place]


def _times(way: Way, share: float) -> Way:
    return tuple((resource, use * share) for resource, use in way)


def _rail(system: System) -> Link:
    assert system.rail is not None  # System refuses several nodes without one
    return system.rail


def _joined(*ways: Way) -> Way:
    """One way over all of these; what stands in several is used several times."""
    together: dict[Resource, float] = {}
    for way in ways:
        for resource, share in way:
            together[resource] = together.get(resource, 0.0) + share
    return tuple(together.items())
