"""What work runs on: GPUs, the links between them, and systems of them, as data.

Bandwidths are bytes/s, rates operations/s, capacities bytes, times integer nanoseconds. The catalogue that
fills these records, each number with its source, is `conccl.costs.catalogue`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from conccl.core.errors import InputError
from conccl.core.kinds import DType


class Topology(enum.StrEnum):
    """How the GPUs of one node are joined."""

    MESH = "mesh"
    """A link of its own between every two (xGMI)."""
    SWITCH = "switch"
    """Each GPU's whole bandwidth reaches any other (NVSwitch)."""
    RING = "ring"
    """A link to the next and one to the previous GPU."""
    HOST = "host"
    """Through the host (PCIe without peers)."""


class CtaDispatch(enum.StrEnum):
    """Which kernel's CTAs an SM gets that becomes free, where several of one priority have CTAs pending."""

    IN_ORDER = "in_order"
    """The first kernel's until none is left: later ones start behind its last wave."""
    ALTERNATING = "alternating"
    """Each queue's in turn."""


class MemoryArbitration(enum.StrEnum):
    """Whom a memory controller serves first where requests exceed its bandwidth."""

    FAIR = "fair"
    """Everyone in proportion to what they have in flight."""
    COMPUTE_FIRST = "compute_first"
    """Communication gets what computation leaves (T3's arbiter, arXiv:2401.16677; no GPU sold has it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A way for bytes out of a GPU, to the host or to peers."""

    name: str
    out_bandwidth: float
    """Bytes/s that one GPU can send in all."""
    in_bandwidth: float
    """Bytes/s that one GPU can receive in all."""
    both_bandwidth: float
    """Bytes/s in and out together when both directions are busy."""
    latency_ns: int
    """From a store or command to its arrival at the other end, beside the bytes."""
    efficiency: float = 1.0
    """The share of these bandwidths that large transfers reach."""

    def __post_init__(self) -> None:
        _require(
            self,
            positive=("out_bandwidth", "in_bandwidth", "both_bandwidth", "efficiency"),
            not_negative=("latency_ns",),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEngines:
    """The engines that move bytes without SMs."""

    count: int
    bandwidth: float
    """Bytes/s of one engine."""
    launch_ns: int
    """From one copy to the next on a busy engine: what a command costs beside its bytes."""
    can_reduce: bool = False
    """Whether they can add as they move (none sold can; an architecture what-if)."""
    local_copies: bool = False
    """Whether copies inside the GPU's own memory run on them."""

    def __post_init__(self) -> None:
        _require(self, positive=("bandwidth",), not_negative=("count", "launch_ns"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU."""

    name: str
    vendor: str
    sm_count: int
    clock_hz: float
    """The SM clock at which ``peak_flops`` is stated."""
    peak_flops: dict[DType, float]
    """Dense matrix rate by element type; a type that is missing has no matrix units here."""
    vector_flops: float
    """fp32 rate outside the matrix units."""
    hbm_nbytes: int
    hbm_bandwidth: float
    """As the data sheet has it; see ``hbm_efficiency``."""
    l2_nbytes: int
    l2_bandwidth: float
    shared_memory_nbytes: int
    """Shared memory of one SM."""
    threads_per_sm: int
    ctas_per_sm: int
    copy_engines: CopyEngines
    host_link: Link
    peer_link: Link
    peer_topology: Topology
    peer_links: int = 1
    """Peers that a GPU has a link of its own to, in a mesh or ring; ``peer_link`` is all of them together."""
    in_switch_reduction: bool = False
    """Whether the switch can add what it forwards (NVLink SHARP)."""
    memory_cache_nbytes: int = 0
    """Cache between L2 and HBM that all SMs share (Infinity Cache); 0: none."""
    memory_cache_bandwidth: float = 0.0
    """Bytes/s of that cache; 0 where there is none."""
    gpus_per_node: int = 8
    """GPUs of the node that it is sold in."""
    rail: Link | None = None
    """One GPU's share of the network between such nodes."""
    hbm_efficiency: float = 0.9
    """The share of ``hbm_bandwidth`` that the best kernels reach."""
    cta_dispatch: CtaDispatch = CtaDispatch.IN_ORDER
    memory_arbitration: MemoryArbitration = MemoryArbitration.FAIR
    registers_per_sm: int = 65_536
    """32-bit registers of one SM."""
    max_clock_hz: float = 0.0
    """The SM clock of loads that draw little power; 0: the same."""
    sm_group: int = 1
    """SMs are partitioned in multiples of this many."""
    kernel_launch_ns: int = 0
    """GPU time from the end of one kernel to the start of the next on the same stream."""
    host_launch_ns: int = 0
    """Host time to launch one kernel."""
    power_limit_w: float = 0.0
    """0: not known."""
    calibration: dict[str, float] = field(default_factory=dict)
    """Constants of cost models fitted to this device ("gemm.prologue_ns"); what is missing has a default."""
    sources: dict[str, str] = field(default_factory=dict)
    """Where each number comes from."""

    def __post_init__(self) -> None:
        _require(
            self,
            positive=(
                "sm_count",
                "clock_hz",
                "vector_flops",
                "hbm_nbytes",
                "hbm_bandwidth",
                "l2_nbytes",
                "l2_bandwidth",
                "shared_memory_nbytes",
                "threads_per_sm",
                "ctas_per_sm",
                "hbm_efficiency",
                "registers_per_sm",
                "sm_group",
                "peer_links",
                "gpus_per_node",
            ),
            not_negative=(
                "kernel_launch_ns",
                "host_launch_ns",
                "power_limit_w",
                "memory_cache_nbytes",
                "memory_cache_bandwidth",
                "max_clock_hz",
            ),
        )

    @property
    def light_clock_hz(self) -> float:
        """The SM clock of loads that draw little power."""
        return self.max_clock_hz or self.clock_hz

    def __hash__(self) -> int:
        """By what tells devices apart and sweeps vary (dicts have no hash): costs are cached by device."""
        engines = self.copy_engines
        return hash(
            (
                self.name,
                self.sm_count,
                self.clock_hz,
                self.hbm_bandwidth,
                self.l2_nbytes,
                self.peer_link.out_bandwidth,
                engines.count,
                engines.bandwidth,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Equal GPUs in equal nodes, and the rails between the nodes."""

    device: Device
    gpus: int
    gpus_per_node: int = 8
    rail: Link | None = None
    """One GPU's share of the network between nodes; None where there is one node."""

    def __post_init__(self) -> None:
        _require(self, positive=("gpus", "gpus_per_node"), not_negative=())
        if self.gpus > self.gpus_per_node:
            if self.gpus % self.gpus_per_node:
                raise InputError(
                    f"{self.gpus} GPUs do not fill nodes of {self.gpus_per_node}."
                    f" Give a multiple of {self.gpus_per_node}."
                )
            if self.rail is None:
                raise InputError(
                    f"{self.gpus} GPUs in nodes of {self.gpus_per_node} need a rail between the nodes."
                )

    @property
    def nodes(self) -> int:
        """Nodes that hold the GPUs."""
        return max(1, self.gpus // self.gpus_per_node)


def _require(record: object, *, positive: tuple[str, ...], not_negative: tuple[str, ...]) -> None:
    for name in positive:
        if not getattr(record, name) > 0:
            raise InputError(
                f"{type(record).__name__}.{name} is {getattr(record, name)}; it must be above 0."
            )
    for name in not_negative:
        if not getattr(record, name) >= 0:
            raise InputError(
                f"{type(record).__name__}.{name} is {getattr(record, name)}; it must not be negative."
            )
