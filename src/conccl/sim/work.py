"""What a task makes a GPU do: kernels for its SMs, commands for its copy engines, or a wait.

A task is a sequence of stages; the parts of its output become ready in the last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conccl.core.errors import PlanError
from conccl.core.hardware import Device, System
from conccl.core.kinds import CollectiveKind, Memory
from conccl.core.ops import Collective, Copy, HostWork, Move, Multicast, Op, Reduce, Region, Signal, Swap
from conccl.core.plan import Engine, Task
from conccl.costs.collective import CollectiveCost
from conccl.costs.constants import constant
from conccl.costs.kernel import KernelCost
from conccl.sim.fabric import Fabric, Way
from conccl.sim.movers import (
    COPY_CTAS,
    Traffic,
    collective_traffic,
    copy_cta_bandwidth,
    link_cta_bandwidth,
    mover,
)
from conccl.sim.shares import Resource

KernelsOf = Callable[[Op, Device], Sequence[KernelCost]]
"""The kernels of a compute op, in order."""

CollectiveCostOf = Callable[[Collective, Device], CollectiveCost]
"""A collective alone, as the vendor's library runs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStage:
    """A kernel on SMs."""

    kernel: KernelCost
    way: Way = ()
    """What a byte of its link traffic uses."""
    pace_ns: float | None = None
    """Of kernels that move bytes: the time of a CTA's share by itself. Their CTAs stay to the end and work on
    all parts of the output, one part after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandStage:
    """Commands that copy engines carry out side by side."""

    nbytes: int
    ways: tuple[Way, ...]
    latency_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStage:
    """Time in which nothing is used."""

    wait_ns: int


Stage = KernelStage | CommandStage | WaitStage


class Worker:
    """Says what tasks make the GPUs of a system do."""

    def __init__(
        self, *, system: System, fabric: Fabric, kernels_of: KernelsOf, collective_cost: CollectiveCostOf
    ) -> None:
        self._system = system
        self._device = system.device
        self._fabric = fabric
        self._kernels_of = kernels_of
        self._collective_cost = collective_cost

    def stages(self, task: Task, /) -> tuple[Stage, ...]:  # noqa: PLR0911 (one for each kind of op)
        """The task's stages, one after the other; none where there is nothing to do."""
        op = task.op
        match op:
            case Signal():
                return (WaitStage(wait_ns=0),)
            case HostWork():
                return (WaitStage(wait_ns=op.duration_ns),)
            case Copy():
                way = self._fabric.copy(task.rank, source=op.source, destination=op.destination)
                local = op.source is Memory.DEVICE and op.destination is Memory.DEVICE
                return self._moving(task, nbytes=op.nbytes, ways=(way,), local=local)
            case Move():
                return self._moving(task, nbytes=op.nbytes, ways=(self._way(op.source, op.destination),))
            case Multicast():
                return self._moving(task, nbytes=op.source.nbytes, ways=(self._multicast_way(op),))
            case Swap():
                there, back = self._way(op.first, op.second), self._way(op.second, op.first)
                return self._moving(task, nbytes=op.first.nbytes, ways=(_together(there, back),))
            case Reduce():
                return self._reducing(task, op)
            case Collective():
                return self._collective(task, op)
            case _:
                if task.engine is Engine.COPY_ENGINE:
                    raise PlanError(
                        f"task {task.id!r} gives a {type(op).__name__} to a copy engine, which only copies."
                        " Give it engine 'sm'."
                    )
                return tuple(KernelStage(kernel=kernel) for kernel in self._kernels_of(op, self._device))

    def hbm_nbytes(self, task: Task, /) -> float:
        """Bytes that the task moves in and out of HBM, on all GPUs that it touches, with nobody beside it."""
        total = 0.0
        for stage in self.stages(task):
            match stage:
                case KernelStage():
                    work = [(group.count, group.work) for group in stage.kernel.groups]
                    total += stage.kernel.hbm_nbytes
                    total += sum(count * one.link_nbytes for count, one in work) * self._hbm_use(stage.way)
                case CommandStage():
                    total += stage.nbytes * sum(self._hbm_use(way) for way in stage.ways)
                case WaitStage():
                    pass
        return total

    def _hbm_use(self, way: Way) -> float:
        return sum(use for resource, use in way if resource.name == "hbm")

    def _way(self, source: Region, destination: Region) -> Way:
        return self._fabric.between(source.rank, destination.rank)

    def _multicast_way(self, op: Multicast) -> Way:
        """The source read once, and every destination's link and memory."""
        uses: list[Way] = [((self._fabric.hbm(op.source.rank), 1.0),)]
        for destination in op.destinations:
            uses.append(((self._fabric.hbm(destination.rank), 1.0),))
            if destination.rank != op.source.rank:
                uses.append(self._fabric.link(op.source.rank, destination.rank))
        return _together(*uses)

    def _moving(
        self, task: Task, *, nbytes: int, ways: tuple[Way, ...], local: bool | None = None
    ) -> tuple[Stage, ...]:
        engines = self._device.copy_engines
        if local is None:
            local = all(len(way) == 1 for way in ways)
        if task.engine is Engine.COPY_ENGINE and (engines.local_copies or not local):
            if engines.count == 0:
                raise PlanError(
                    f"task {task.id!r} asks for a copy engine and {self._device.name} has none."
                    " Give it engine 'sm', or set copy_engines.count."
                )
            return (CommandStage(nbytes=nbytes, ways=ways, latency_ns=float(engines.launch_ns)),)
        return (self._copy_kernel(task, nbytes=nbytes, ways=ways, local=local),)

    def _copy_kernel(self, task: Task, *, nbytes: int, ways: tuple[Way, ...], local: bool) -> KernelStage:
        """SMs that load and store; a way within the GPU is HBM traffic like any kernel's."""
        host = Memory.HOST in (getattr(task.op, "source", None), getattr(task.op, "destination", None))
        ctas = self._ctas(task, default=COPY_CTAS if not local else self._device.sm_count)
        reach = copy_cta_bandwidth(self._device) if local else link_cta_bandwidth(self._device)
        moving = mover(
            "copy",
            device=self._device,
            nbytes=nbytes,
            ctas=ctas,
            cta_bandwidth=reach,
            traffic=Traffic(hbm_read=1.0, hbm_write=1.0)
            if local
            else Traffic(hbm_read=0, hbm_write=0, link=1),
            latency_ns=constant(self._device, "mover.latency_ns"),
            least_ns=nbytes / self._host_pace(task.op) if host else 0.0,
            ctas_per_sm=task.ctas_per_sm,
        )
        return KernelStage(
            kernel=moving.kernel, way=() if local else _together(*ways), pace_ns=moving.pace_ns
        )

    def _reducing(self, task: Task, op: Reduce) -> tuple[Stage, ...]:
        """Every source read where it lies, the result written."""
        home, by_engine = op.destination.rank, task.engine is Engine.COPY_ENGINE
        uses: list[Way] = [((self._fabric.hbm(home), 1.0),)]
        for source in op.sources:
            if source.rank != home:
                uses.append(self._fabric.between(source.rank, home)[:1])
                uses.append(self._fabric.link(source.rank, home))
            elif not by_engine:  # engines add near memory, without reading (T3, arXiv:2401.16677)
                uses.append(((self._fabric.hbm(home), 1.0),))
        way = _together(*uses)
        nbytes = op.destination.nbytes
        if task.engine is Engine.COPY_ENGINE:
            engines = self._device.copy_engines
            if not engines.can_reduce:
                raise PlanError(
                    f"task {task.id!r} asks a copy engine of {self._device.name} to reduce, which it cannot."
                    " Give it engine 'sm', or set copy_engines.can_reduce."
                )
            return (CommandStage(nbytes=nbytes, ways=(way,), latency_ns=float(engines.launch_ns)),)
        remote = any(source.rank != home for source in op.sources)
        reach = link_cta_bandwidth(self._device) if remote else copy_cta_bandwidth(self._device)
        moving = mover(
            "reduce",
            device=self._device,
            nbytes=nbytes,
            ctas=self._ctas(task, default=COPY_CTAS if remote else self._device.sm_count),
            cta_bandwidth=reach,
            traffic=Traffic(hbm_read=0, hbm_write=0, link=1),
            latency_ns=constant(self._device, "mover.latency_ns"),
            ctas_per_sm=task.ctas_per_sm,
        )
        return (KernelStage(kernel=moving.kernel, way=way, pace_ns=moving.pace_ns),)

    def _collective(self, task: Task, op: Collective) -> tuple[Stage, ...]:
        """One opaque library kernel, or the library's copy-engine path."""
        if op.ranks == 1:
            return ()
        way = self._fabric.exchange(op, rank=task.rank)
        hbm = self._fabric.hbm(task.rank)
        cost = self._collective_cost(op, self._device)
        sent = cost.link_nbytes
        if sent == 0:  # a barrier
            return (WaitStage(wait_ns=cost.time_ns),)
        latency_ns = self._collective_cost(dataclasses.replace(op, nbytes=0), self._device).time_ns
        if task.engine is Engine.COPY_ENGINE:
            if op.kind in _REDUCING and not self._device.copy_engines.can_reduce:
                raise PlanError(
                    f"task {task.id!r} asks copy engines for {op.kind}, and those of {self._device.name}"
                    " cannot reduce. Give it engine 'sm'."
                )
            lanes = max(1, min(op.ranks - 1, self._device.copy_engines.count))
            return (
                CommandStage(
                    nbytes=round(sent / lanes),
                    ways=(((hbm, 2.0), *way),) * lanes,
                    latency_ns=latency_ns + self._device.copy_engines.launch_ns,
                ),
            )
        moving_ns = max(1, cost.time_ns - latency_ns)
        moving = mover(
            str(op.kind),
            device=self._device,
            nbytes=sent,
            ctas=self._ctas(task, default=cost.ctas),
            cta_bandwidth=sent / cost.ctas / moving_ns * 1e9,
            traffic=collective_traffic(op),
            latency_ns=latency_ns,
            least_ns=moving_ns,
            ctas_per_sm=task.ctas_per_sm or self._library_ctas(),
        )
        return (KernelStage(kernel=moving.kernel, way=way, pace_ns=moving.pace_ns),)

    def _library_ctas(self) -> int | None:
        """NCCL's kernels have up to 640 threads of 96 registers: a second one finds no room on an SM."""
        return round(constant(self._device, "mover.library_ctas")) or None

    def _host_pace(self, op: Op) -> float:
        """Bytes a nanosecond that SMs reach over the host link."""
        link = self._device.host_link
        outwards = isinstance(op, Copy) and op.destination is Memory.HOST
        bandwidth = link.out_bandwidth if outwards else link.in_bandwidth
        return bandwidth * link.efficiency * constant(self._device, "mover.host_share") / 1e9

    def _ctas(self, task: Task, *, default: int) -> int:
        """A persistent kernel has as many CTAs as it may have resident."""
        return default if task.sms is None else task.sms * (task.ctas_per_sm or 1)


_REDUCING = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE,
    CollectiveKind.REDUCE_SCATTER,
)


def _together(*ways: Way) -> Way:
    joined: dict[Resource, float] = {}
    for way in ways:
        for resource, share in way:
            joined[resource] = joined.get(resource, 0.0) + share
    return tuple(joined.items())
