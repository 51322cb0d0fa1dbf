"""Which strategy a pair should go by, from costs alone: nothing is run, nothing was measured before.

Each candidate gets the time that its two sides would take side by side: what either takes with the SMs that
the other leaves it, stretched where both together ask for more than HBM gives. Serial stays unless another
one promises clearly more than nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.hardware import Device, System, Topology
from conccl.core.kinds import CollectiveKind, Memory
from conccl.core.ops import Collective, Communication, Copy, Gemm
from conccl.core.pair import Dependence, Pair
from conccl.core.plan import Engine
from conccl.costs.collective import Algorithm, collective_cost, sent_nbytes
from conccl.costs.constants import constant
from conccl.costs.kernels import kernels_of
from conccl.strategies.choices import (
    COPY_ENGINES,
    SERIAL,
    TRIM,
    Chunked,
    Partitioned,
    Prioritized,
    Strategy,
)
from conccl.strategies.heuristics import (
    KernelsOf,
    alone_ns,
    communication_sms,
    compute_ns_on,
    is_worth_trimming,
    partition_sms,
)

WORTH = 0.95
"""Of serial time: what another strategy must stay below. Estimates are no better than their cost models."""

SURER = 0.97
"""What a strategy without SMs may take longer by its estimate, and still be preferred."""

AROUND = 1.3
"""Time to allow on a ring for partial sums that go to far peers over the links of others."""

CHUNKS = (2, 4, 8)

_PHASES = {
    CollectiveKind.REDUCE_SCATTER: (CollectiveKind.ALL_TO_ALL,),
    CollectiveKind.ALL_REDUCE: (CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_GATHER),
}
"""What engines that cannot add do: exchange, let SMs add, gather."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """How long a pair would take by a strategy."""

    strategy: Strategy
    time_ns: float


def choose(pair: Pair, system: System, /, *, kernels_of: KernelsOf = kernels_of) -> Strategy:
    """The strategy that promises most; serial where none promises enough."""
    serial, *others = estimates(pair, system, kernels_of=kernels_of)
    best = min(others, key=_without_sms_first, default=serial)
    return best.strategy if best.time_ns < WORTH * serial.time_ns else serial.strategy


def _without_sms_first(one: Estimate) -> float:
    """Where two promise about the same, what takes no SMs is surer to keep it."""
    return one.time_ns * (SURER if one.strategy.engine is Engine.COPY_ENGINE else 1.0)


def estimates(pair: Pair, system: System, /, *, kernels_of: KernelsOf = kernels_of) -> tuple[Estimate, ...]:
    """Serial first, then every candidate that the pair and the system can have."""
    sides = _Sides(pair=pair, system=system, kernels_of=kernels_of)
    serial = Estimate(strategy=SERIAL, time_ns=sides.compute_ns + sides.communication_ns)
    others = sides.independent() if pair.dependence is Dependence.NONE else sides.dependent()
    return (serial, *others)


def together_ns(first_ns: float, second_ns: float, /, *, stretch: float) -> float:
    """Two sides begun together: both stretched while both run, then the longer one alone."""
    return min(first_ns, second_ns) * stretch + abs(first_ns - second_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    pair: Pair
    system: System
    kernels_of: KernelsOf

    @property
    def device(self) -> Device:
        return self.system.device

    @property
    def compute_ns(self) -> float:
        return alone_ns(self.pair.compute, self.device, kernels_of=self.kernels_of)

    @property
    def communication_ns(self) -> float:
        return alone_ns(self.pair.communication, self.device, kernels_of=self.kernels_of)

    def independent(self) -> Iterator[Estimate]:
        pair, device = self.pair, self.device
        sms = communication_sms(pair.communication, device)
        if sms < device.sm_count:
            yield self._beside(
                Strategy(sharing=Prioritized(communication_sms=sms)),
                sms=sms,
                communication_ns=self._moved_by_ns(sms),
            )
        part = partition_sms(pair, device, kernels_of=self.kernels_of) if device.sm_count > 1 else 0
        if part and (isinstance(pair.communication, Collective) or part >= sms):
            yield self._beside(
                Strategy(sharing=Partitioned(communication_sms=part)),
                sms=device.sm_count - (device.sm_count - part) // device.sm_group * device.sm_group,
                communication_ns=self._moved_by_ns(part),
            )
        engines_ns = engines_alone_ns(pair.communication, self.system)
        if engines_ns is None:
            return
        yield self._beside(COPY_ENGINES, sms=0, communication_ns=engines_ns)
        if is_worth_trimming(pair.compute, device, sms=TRIM, kernels_of=self.kernels_of):
            trimmed = dataclasses.replace(COPY_ENGINES, trimmed_sms=TRIM)
            yield self._beside(trimmed, sms=0, communication_ns=engines_ns)

    def dependent(self) -> Iterator[Estimate]:
        """Chunks of rows, each followed or preceded by its share of the transfer, by copy engines.

        One fused kernel is no candidate: whether a device has a kernel that triggers transfers, and what it
        costs, no cost model says.
        """
        gemm, op = self.pair.compute, self.pair.communication
        if not isinstance(gemm, Gemm):
            return
        for count in CHUNKS:
            if gemm.m < count or not isinstance(op, (Collective, Copy)) or op.nbytes < count:
                continue
            chunk = dataclasses.replace(gemm, m=-(-gemm.m // count))
            compute_ns = alone_ns(chunk, self.device, kernels_of=self.kernels_of)
            moving_ns = engines_alone_ns(_sized(op, op.nbytes // count), self.system)
            if moving_ns is None:
                return
            stretch = self._stretch(compute_ns * count, moving_ns * count)
            longer_ns = max(compute_ns, moving_ns) * stretch
            yield Estimate(
                strategy=dataclasses.replace(COPY_ENGINES, granularity=Chunked(count=count)),
                time_ns=compute_ns + (count - 1) * longer_ns + moving_ns,
            )

    def _moved_by_ns(self, sms: int) -> float:
        """Communication by so many SMs, one CTA on each."""
        op, device = self.pair.communication, self.device
        alone = self.communication_ns
        if not isinstance(op, Copy):
            return alone * max(1.0, communication_sms(op, device) / sms)
        local = op.source is Memory.DEVICE and op.destination is Memory.DEVICE
        reach = constant(device, "mover.copy_cycle_nbytes" if local else "mover.link_cycle_nbytes")
        if Memory.HOST in (op.source, op.destination):
            alone /= constant(device, "mover.host_share")
        return max(alone, op.nbytes * 1e9 / (sms * reach * device.light_clock_hz))

    def _beside(self, strategy: Strategy, *, sms: int, communication_ns: float) -> Estimate:
        """Computation on the SMs that are left from beginning to end: its CTAs may have come to stay."""
        device = self.device
        compute_ns = self.compute_ns
        if sms:
            left = device.sm_count - sms
            compute_ns = max(
                compute_ns, compute_ns_on(self.pair.compute, device, sms=left, kernels_of=self.kernels_of)
            )
        stretch = self._stretch(compute_ns, communication_ns)
        return Estimate(strategy=strategy, time_ns=together_ns(compute_ns, communication_ns, stretch=stretch))

    def _stretch(self, compute_ns: float, communication_ns: float) -> float:
        """By how much both ask for more than HBM gives."""
        if compute_ns <= 0 or communication_ns <= 0:
            return 1.0
        device = self.device
        read = sum(kernel.hbm_nbytes for kernel in self.kernels_of(self.pair.compute, device))
        moved = _hbm_nbytes(self.pair.communication)
        asked = read * 1e9 / compute_ns + moved * 1e9 / communication_ns
        return max(1.0, asked / (device.hbm_bandwidth * device.hbm_efficiency))


def engines_alone_ns(op: Communication, system: System, /) -> float | None:
    """A communication by copy engines with the device to itself; None where they cannot do it."""
    if system.device.copy_engines.count == 0:
        return None
    if isinstance(op, Copy):
        return _copy_ns(op, system.device)
    if not isinstance(op, Collective) or op.ranks > system.gpus_per_node:
        return None
    if system.device.peer_topology is Topology.RING and op.ranks < system.gpus:
        return None  # part of a ring is a line, whose middle link carries what the cost model spreads
    try:
        return _collective_ns(op, system.device)
    except InputError:
        return None


def _copy_ns(op: Copy, device: Device) -> float | None:
    engines = device.copy_engines
    if op.source is not Memory.DEVICE or op.destination is not Memory.DEVICE:
        return engines.launch_ns + alone_ns(op, device)
    return engines.launch_ns + op.nbytes * 1e9 / engines.bandwidth if engines.local_copies else None


def _collective_ns(op: Collective, device: Device) -> float:
    if op.ranks == 1:
        return 0.0
    phases: tuple[CollectiveKind, ...] = (op.kind,)
    adding_ns = 0.0
    if op.kind in _PHASES and not device.copy_engines.can_reduce:
        phases = _PHASES[op.kind]
        adding_ns = 2 * op.nbytes * 1e9 / (device.hbm_bandwidth * device.hbm_efficiency)
    each = (dataclasses.replace(op, kind=kind) for kind in phases)
    moving_ns = sum(collective_cost(one, device, algorithm=Algorithm.COPY_ENGINE).time_ns for one in each)
    around = device.peer_topology is Topology.RING and op.kind in _PHASES
    return adding_ns + moving_ns * (AROUND if around else 1.0)


def _hbm_nbytes(op: Communication) -> float:
    if isinstance(op, Collective):
        return 2 * sent_nbytes(op)
    local = isinstance(op, Copy) and op.source is op.destination
    return (2.0 if local else 1.0) * op.nbytes if isinstance(op, Copy) else 0.0


def _sized(op: Communication, nbytes: int) -> Communication:
    return dataclasses.replace(op, nbytes=nbytes)  # type: ignore[arg-type]  # Collective or Copy
