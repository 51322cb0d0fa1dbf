"""How long a collective takes by itself, by algorithm, on GPUs joined by links, switches and rails.

Each protocol of the vendor's library (LL, LL128, Simple) is a start, a cost for each hop and a bandwidth;
small messages go by the first, large ones by the last, and the best of the three is what the library's tuner
aims at. Latencies are counted in SM clocks and bandwidths as shares of what the link reaches, so that the
constants carry over to other devices by their data sheets.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.hardware import Device, Topology
from conccl.core.kinds import CollectiveKind
from conccl.core.metrics import bus_factor
from conccl.core.movement import Collective
from conccl.costs.constants import constant
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, KernelCost, kernel_cost

PROTOCOLS = ("ll", "ll128", "simple")

SHARPNESS = 6.0
"""How abruptly one protocol gives way to the next: the power mean's exponent (tuners choose by channel)."""


class Algorithm(enum.StrEnum):
    """How the bytes go around."""

    RING = "ring"
    TREE = "tree"
    """Rings inside the nodes, a tree over them."""
    DIRECT = "direct"
    """Every rank to every other, at once."""
    IN_SWITCH = "in_switch"
    """The switch adds (NVLink SHARP)."""
    COPY_ENGINE = "copy_engine"
    """Direct, by copy engines: no SMs, but the engines cannot add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCost:
    """One collective by one algorithm."""

    algorithm: Algorithm
    time_ns: int
    link_nbytes: float
    """What each GPU sends."""
    ctas: int
    """CTAs that drive it, one an SM; 0 for copy engines."""
    uncertainty: float
    """Relative error to expect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The ranks of a collective, laid out over nodes."""

    device: Device
    ranks: int
    ranks_per_node: int

    @property
    def nodes(self) -> int:
        return -(-self.ranks // self.ranks_per_node)


_RING = {
    CollectiveKind.ALL_GATHER: 1,
    CollectiveKind.REDUCE_SCATTER: 1,
    CollectiveKind.BROADCAST: 1,
    CollectiveKind.REDUCE: 1,
    CollectiveKind.ALL_REDUCE: 2,
    CollectiveKind.BARRIER: 2,
}
"""Collectives that go around a ring, and how often."""

_REDUCING = frozenset(
    {CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.REDUCE, CollectiveKind.BARRIER}
)


_PAIRWISE = frozenset({CollectiveKind.SEND, CollectiveKind.RECV})

_ENGINE_ROUNDS = {CollectiveKind.BROADCAST: 2, CollectiveKind.REDUCE: 2, CollectiveKind.ALL_REDUCE: 2}
"""Collectives that engines do as a scatter (adding or not) and then a gather."""


def collective_costs(
    op: Collective, device: Device, /, *, ranks_per_node: int | None = None
) -> tuple[CollectiveCost, ...]:
    """The collective by each algorithm that can do it, fastest first; nothing where there is one rank.

    ``ranks_per_node`` None: nodes are filled; 1: one rank in each, as data-parallel groups beside tensor
    parallelism have it.
    """
    if op.ranks == 1:
        return ()
    fill = min(op.ranks, device.gpus_per_node)
    asked = op.ranks_per_node if ranks_per_node is None else ranks_per_node
    each = fill if asked is None else min(asked, op.ranks)
    if not 1 <= each <= device.gpus_per_node:
        raise InputError(
            f"{asked} ranks a node on {device.name}, whose nodes have {device.gpus_per_node} GPUs."
        )
    group = _Group(device=device, ranks=op.ranks, ranks_per_node=each)
    if group.nodes > 1 and device.rail is None:
        raise InputError(
            f"{op.ranks} ranks need {group.nodes} nodes of {device.name}, which has no rail between nodes."
            f" Ask for {device.gpus_per_node} ranks or fewer, or set device.rail.out_bandwidth and latency."
        )
    found = [
        _ring(op, group),
        _tree(op, group),
        _direct(op, group),
        _in_switch(op, group),
        _engines(op, group),
    ]
    return tuple(sorted((cost for cost in found if cost is not None), key=lambda cost: cost.time_ns))


def collective_cost(
    op: Collective,
    device: Device,
    /,
    *,
    algorithm: Algorithm | None = None,
    ranks_per_node: int | None = None,
) -> CollectiveCost:
    """The collective as the vendor's library does it, or by the algorithm asked for."""
    costs = collective_costs(op, device, ranks_per_node=ranks_per_node)
    if algorithm is None:
        costs = tuple(cost for cost in costs if cost.algorithm is not Algorithm.COPY_ENGINE)
    else:
        costs = tuple(cost for cost in costs if cost.algorithm is algorithm)
    if not costs:
        raise InputError(
            f"{device.name} has no way to do {op.kind} among {op.ranks} by {algorithm}."
            f" It can by {', '.join(cost.algorithm for cost in collective_costs(op, device))}."
        )
    return costs[0]


def collective_kernels(op: Collective, device: Device, /) -> tuple[KernelCost, ...]:
    """One rank's kernel: CTAs that fill the link between them and otherwise wait for their peers."""
    if op.ranks == 1:
        return ()
    cost = collective_cost(op, device)
    latency_ns = min(
        cost.time_ns, _latency_ns(device, "ring" if op.kind in _RING else "direct", "ll", hops=1, net_hops=0)
    )
    passes = 2.0 if op.kind in _REDUCING else 1.0
    work = CtaWork(
        latency_ns=latency_ns,
        least_ns=cost.time_ns - latency_ns,
        hbm_read_nbytes=passes * cost.link_nbytes / cost.ctas,
        hbm_write_nbytes=cost.link_nbytes / cost.ctas,
        l2_nbytes=(1 + passes) * cost.link_nbytes / cost.ctas,
        link_nbytes=cost.link_nbytes / cost.ctas,
    )
    return (
        kernel_cost(
            f"{op.kind}_{cost.algorithm}",
            device=device,
            groups=(CtaGroup(count=min(cost.ctas, device.sm_count), work=work),),
            footprint=Footprint(threads=544, registers=544 * 96, shared_memory_nbytes=80 * 1024),
            ctas_per_sm=1,
            fixed_ns=0.0,
            uncertainty=cost.uncertainty,
            model="collective",
        ),
    )


def _ring(op: Collective, group: _Group) -> CollectiveCost | None:
    if op.kind not in _RING:
        return None
    trips = _RING[op.kind]
    net_hops = trips * group.nodes if group.nodes > 1 else 0
    return _by_protocols(
        op, group, Algorithm.RING, hops=trips * (group.ranks - 1) - net_hops, net_hops=net_hops
    )


def _tree(op: Collective, group: _Group) -> CollectiveCost | None:
    if _RING.get(op.kind) != 2 or group.nodes < 2:
        return None
    net_hops = 2 * math.ceil(math.log2(group.nodes))
    return _by_protocols(op, group, Algorithm.TREE, hops=2 * (group.ranks_per_node - 1), net_hops=net_hops)


def _direct(op: Collective, group: _Group) -> CollectiveCost | None:
    if op.kind in _RING:
        return None
    peers = 1 if op.kind in _PAIRWISE else group.ranks - 1
    return _by_protocols(
        op, group, Algorithm.DIRECT, hops=peers, net_hops=1 if group.nodes > 1 else 0, family="direct"
    )


def _by_protocols(
    op: Collective, group: _Group, algorithm: Algorithm, *, hops: int, net_hops: int, family: str = "ring"
) -> CollectiveCost:
    """The power mean of the protocols' times: close to the smallest of them."""
    device = group.device
    wire = sent_nbytes(op)
    total = 0.0
    for protocol in PROTOCOLS:
        bandwidth = _bandwidth(op, group) * constant(device, f"collective.{family}.{protocol}_share")
        if protocol == "simple" and device.peer_topology is Topology.SWITCH:
            bandwidth *= group.ranks / (group.ranks + constant(device, f"collective.{family}.few_ranks"))
        time_ns = _latency_ns(device, family, protocol, hops=hops, net_hops=net_hops) + wire * 1e9 / bandwidth
        total += time_ns**-SHARPNESS
    return _cost(op, group, algorithm, time_ns=total ** (-1 / SHARPNESS), wire=wire)


def _in_switch(op: Collective, group: _Group) -> CollectiveCost | None:
    """Each GPU sends its values once and receives the sums once; the library does so on whole nodes only."""
    device = group.device
    whole = group.ranks_per_node == device.gpus_per_node and group.nodes == 1
    if op.kind is not CollectiveKind.ALL_REDUCE or not device.in_switch_reduction or not whole:
        return None
    latency = constant(device, "collective.in_switch.cycles") / device.light_clock_hz * 1e9
    bandwidth = reachable(device) * constant(device, "collective.in_switch.share")
    return _cost(
        op, group, Algorithm.IN_SWITCH, time_ns=latency + op.nbytes * 1e9 / bandwidth, wire=float(op.nbytes)
    )


def _engines(op: Collective, group: _Group) -> CollectiveCost | None:
    """Copies to every peer, shared out over the engines, then one synchronisation; commands queued before."""
    device = group.device
    engines = device.copy_engines
    if group.nodes > 1 or engines.count == 0 or op.kind is CollectiveKind.BARRIER:
        return None
    if op.kind in _REDUCING and not engines.can_reduce:
        return None
    peers = 1 if op.kind in _PAIRWISE else group.ranks - 1
    rounds = _ENGINE_ROUNDS.get(op.kind, 1)
    wire = float(op.nbytes) if op.kind in _PAIRWISE else rounds * op.nbytes * peers / group.ranks
    used = min(engines.count, peers)
    bandwidth = min(_bandwidth(op, group), used * engines.bandwidth * device.peer_link.efficiency)
    launches = rounds * -(-peers // used) * engines.launch_ns
    sync_ns = rounds * (engines.launch_ns + device.peer_link.latency_ns)
    return _cost(
        op, group, Algorithm.COPY_ENGINE, time_ns=launches + wire * 1e9 / bandwidth + sync_ns, wire=wire
    )


def _cost(
    op: Collective, group: _Group, algorithm: Algorithm, *, time_ns: float, wire: float
) -> CollectiveCost:
    device = group.device
    uncertainty = constant(device, "collective.uncertainty")
    if group.nodes > 1 or algorithm is Algorithm.COPY_ENGINE:
        uncertainty = max(uncertainty, constant(device, "collective.unmeasured_uncertainty"))
    family = "ring" if op.kind in _RING else "direct"
    ctas = 0 if algorithm is Algorithm.COPY_ENGINE else round(constant(device, f"collective.{family}.ctas"))
    return CollectiveCost(
        algorithm=algorithm,
        time_ns=max(1, round(time_ns)),
        link_nbytes=wire,
        ctas=ctas,
        uncertainty=uncertainty,
    )


def sent_nbytes(op: Collective, /) -> float:
    """What each GPU (the root, of gather and scatter) sends or receives over its link."""
    if op.kind is CollectiveKind.BARRIER:
        return 0.0
    return op.nbytes * bus_factor(kind=op.kind, ranks=op.ranks)


def reachable(device: Device, /) -> float:
    """Bytes/s that a GPU's links to its peers reach one way."""
    return device.peer_link.out_bandwidth * device.peer_link.efficiency


def _bandwidth(op: Collective, group: _Group) -> float:
    """Bytes/s at which the bytes that each GPU sends can leave, at best."""
    device = group.device
    inside = _inside_bandwidth(op, group)
    if group.nodes == 1 or device.rail is None:
        return inside
    rail = device.rail.out_bandwidth * device.rail.efficiency
    if op.kind in _RING:
        # Every ring crosses between two nodes once, and each rail of a node carries rings of its own.
        return min(inside, rail * group.ranks_per_node) if group.ranks_per_node > 1 else rail
    outside = (group.ranks - group.ranks_per_node) / (group.ranks - 1)
    return min(inside / max(1 - outside, 1e-9), rail / outside)


def _inside_bandwidth(op: Collective, group: _Group) -> float:
    device = group.device
    if device.peer_topology is Topology.HOST:
        return device.host_link.both_bandwidth / 2 * device.host_link.efficiency
    if device.peer_topology is Topology.MESH:
        used = 1 if op.kind in _PAIRWISE else min(max(group.ranks_per_node - 1, 1), device.peer_links)
        return reachable(device) * used / device.peer_links
    if device.peer_topology is Topology.RING and op.kind not in _RING:
        # All-to-all on a ring: a byte crosses a quarter of the ring on average, and takes every link's time.
        return reachable(device) / max(1.0, group.ranks_per_node / 4)
    return reachable(device)


def _latency_ns(device: Device, family: str, protocol: str, *, hops: int, net_hops: int) -> float:
    start = constant(device, f"collective.{family}.{protocol}_cycles")
    hop = constant(device, f"collective.{family}.{protocol}_hop_cycles")
    rail_ns = 0 if device.rail is None else net_hops * device.rail.latency_ns
    return (start + (hops + net_hops) * hop) / device.light_clock_hz * 1e9 + rail_ns
