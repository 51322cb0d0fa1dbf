"""Which way a fused operator goes: serial, in how many chunks, or tracked, and why.

Measured times of this shape or of one near it decide. Where there are none, the cost models do: every way
has a time that it cannot beat (its chunks alone, one behind the other in a pipeline of two stages), and the
simulator runs ways in the order of these until none that is left can be faster than the best so far.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conccl.core.errors import InputError, UnknownNameError
from conccl.core.hardware import Device
from conccl.core.kinds import Memory
from conccl.core.ops import Collective, Communication, Copy, Gemm
from conccl.core.pair import Dependence
from conccl.costs.catalogue import system_of
from conccl.costs.collective import collective_cost, collective_costs
from conccl.costs.gemm import gemm_ns
from conccl.costs.kernel import KernelCost
from conccl.costs.kernels import kernels_of
from conccl.sim.executor import SimExecutor
from conccl.strategies.cutting import Sizes, cut_rows
from conccl.strategies.lower import lower
from conccl.strategies.ways import Chunked, Serial, Tracked, Way
from conccl.tune.fused_problem import Problem
from conccl.tune.fused_table import Table

MARGIN = 0.02
"""What another way must gain over serial, which is simpler and cannot be mispredicted."""

TRACKED_SLOWDOWN = 1.06
"""A persistent Triton GEMM beside the vendor's: 1.46 ms and 1.38 ms (H200, bf16, 8192 x 4096 x 16384)."""

COUNTS = (2, 3, 4, 6, 8, 12, 16)
"""Chunks tried; more of them cost more in launches and small GEMMs than they hide."""

TRACKED_COUNTS = (4, 8, 16, 32)

SIMULATED = ("serial", "chunked", "tracked")
"""The ways that are compared where nothing else is said."""


def kinds_of_ways(text: str, /) -> tuple[str, ...]:
    """The kinds of ways that a text names, comma between; serial is always one."""
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in SIMULATED:
            raise UnknownNameError(kind="way", name=word, known=SIMULATED)
    return tuple(dict.fromkeys(("serial", *words)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The way chosen, and what spoke for it."""

    way: Way
    reason: str
    predicted_ns: Mapping[str, int] = field(default_factory=dict)
    """Way -> its time, of those that were looked at; simulated, or measured where ``is_measured``."""
    is_measured: bool = False

    @property
    def speedup(self) -> float | None:
        """Over serial."""
        serial, chosen = self.predicted_ns.get("serial"), self.predicted_ns.get(str(self.way))
        return serial / chosen if serial and chosen else None


def choose(
    problem: Problem,
    /,
    *,
    device: Device | None,
    table: Table | None = None,
    ways: Sequence[str] = SIMULATED,
) -> Choice:
    """The way to take. ``device`` None: one that there are no costs of; then only measurements speak."""
    if problem.is_local:
        return Choice(way=Serial(), reason="one rank: there is nothing to overlap with.")
    measured = table.nearest(problem) if table is not None else ()
    if measured:
        return _by_measurement(problem, {str(row.way): row for row in measured}, ways)
    if device is None:
        return Choice(
            way=Serial(),
            reason="there are neither costs of this device nor measurements near this shape.",
        )
    return _by_simulation(problem, device, tuple(ways))


def _by_measurement(problem: Problem, rows: Mapping[str, Any], ways: Sequence[str]) -> Choice:
    times = {name: row.ns for name, row in rows.items() if name.partition(":")[0] in ways}
    best, why = _settled(times)
    row = next(iter(rows.values()))
    distance = row.distance(problem)
    shape = f"{row.m}x{row.n}x{row.k}"
    where = f"measured at {shape}" if distance == 1 else f"measured at {shape}, the nearest shape"
    return Choice(way=rows[best].way, reason=f"{why} ({where}).", predicted_ns=times, is_measured=True)


@functools.lru_cache(maxsize=4096)
def _by_simulation(problem: Problem, device: Device, ways: tuple[str, ...]) -> Choice:
    serial: Way = Serial()
    times: dict[Way, int] = {serial: simulated_ns(problem, serial, device)}
    _try(problem, device, list(_candidates(problem, ways)), times)
    looked_beside: Way | None = None
    while looked_beside != (best := min(times, key=lambda way: times[way])):
        looked_beside = best
        _try(problem, device, [way for way in _beside(best, problem) if way not in times], times)
    named = {str(way): ns for way, ns in times.items()}
    chosen, why = _settled(named)
    gemm, moved = _alone(problem, device)
    sizes = f"GEMM {gemm / 1e3:.0f} us, transfer {moved / 1e3:.0f} us"
    way = next(one for one in times if str(one) == chosen)
    return Choice(way=way, reason=f"{why} (simulated; {sizes}).", predicted_ns=named)


def _try(problem: Problem, device: Device, ways: Sequence[Way], times: dict[Way, int]) -> None:
    """Simulate ways in the order of what they cannot beat, as long as they could be the fastest."""
    bounds = {way: least_ns(problem, way, device) for way in ways}
    for way in sorted(bounds, key=lambda way: bounds[way]):
        if bounds[way] >= min(times.values()):
            break
        times[way] = simulated_ns(problem, way, device)


def _beside(way: Way, problem: Problem) -> Iterator[Way]:
    """A chunk more and one less, of both kinds of sizes: what the coarse steps of `COUNTS` pass over."""
    if isinstance(way, Chunked):
        for chunks in (way.chunks - 1, way.chunks, way.chunks + 1):
            for sizes in Sizes:
                if 2 <= chunks <= problem.m and (chunks > 2 or sizes is Sizes.EQUAL):
                    yield Chunked(chunks=chunks, sizes=sizes)


def _settled(times: Mapping[str, int]) -> tuple[str, str]:
    """The way to take by these times, and why."""
    best = min(times, key=lambda name: (times[name], name))
    serial = times["serial"]
    gain = serial / times[best] - 1
    if best == "serial":
        others = [time for name, time in times.items() if name != "serial"]
        if not others:
            return "serial", "no other way can be faster: chunks cost more than they hide"
        return "serial", f"the fastest other way is {min(others) / serial - 1:.0%} slower"
    if gain < MARGIN:
        return "serial", f"{best} would gain only {gain:.1%}"
    return best, f"{serial / times[best]:.2f}x over serial"


def _candidates(problem: Problem, ways: Sequence[str]) -> Iterator[Way]:
    rows = problem.m
    if "chunked" in ways:
        for count in COUNTS:
            if count <= rows:
                yield Chunked(chunks=count)
                if count > 2:
                    yield Chunked(chunks=count, sizes=Sizes.SHRINKING)
    if "tracked" in ways:
        for count in TRACKED_COUNTS:
            if problem.world <= count <= rows:
                yield Tracked(chunks=count)


def simulated_ns(problem: Problem, way: Way, device: Device, /) -> int:
    """The time of the call by this way on the simulated device."""
    system = system_of(device, gpus=problem.world)
    plan = lower(problem.pair(), problem.strategy(way), system=system)
    costs = _slower_gemms if isinstance(way, Tracked) else kernels_of
    return SimExecutor(system=system, kernels_of=costs).run(plan).span_ns


def _slower_gemms(op: Any, device: Device, /) -> Sequence[KernelCost]:
    """As `kernels_of`, with GEMMs by the tracking kernel."""
    kernels = kernels_of(op, device)
    return tuple(_slower(kernel) for kernel in kernels) if isinstance(op, Gemm) else kernels


def _slower(kernel: KernelCost) -> KernelCost:
    groups = tuple(
        dataclasses.replace(
            group,
            work=dataclasses.replace(
                group.work,
                least_ns=group.work.least_ns * TRACKED_SLOWDOWN,
                sm_ns=group.work.sm_ns * TRACKED_SLOWDOWN,
            ),
        )
        for group in kernel.groups
    )
    return dataclasses.replace(
        kernel, groups=groups, isolated_ns=round(kernel.isolated_ns * TRACKED_SLOWDOWN)
    )


def least_ns(problem: Problem, way: Way, device: Device, /) -> float:
    """A time that the way cannot beat: its pieces alone, in a pipeline of GEMM and transfer."""
    pair = problem.pair()
    gemm = pair.compute
    assert isinstance(gemm, Gemm)
    if isinstance(way, Tracked):
        whole = float(gemm_ns([gemm], device)[0]) * TRACKED_SLOWDOWN
        return max(whole, _moving_ns(pair.communication, problem, device))
    if not isinstance(way, Chunked):
        raise InputError(f"{way} has no chunks.")
    rows = cut_rows(gemm.m, way.chunks, sizes=way.sizes)
    computing = dict(zip(sorted(set(rows)), _gemms_ns(gemm, tuple(sorted(set(rows))), device), strict=True))
    whole_nbytes = pair.communication.nbytes
    moving = {
        count: _moving_ns(_sized(pair.communication, whole_nbytes * count // gemm.m), problem, device)
        for count in computing
    }
    feeds = pair.dependence is Dependence.COMPUTE_FEEDS_COMMUNICATION
    first, second = (computing, moving) if feeds else (moving, computing)
    if not feeds:
        rows = rows[::-1]
    begun = ended = 0.0
    for count in rows:
        begun += first[count]
        ended = max(ended, begun) + second[count]
    return ended


@functools.lru_cache(maxsize=4096)
def _gemms_ns(gemm: Gemm, rows: tuple[int, ...], device: Device) -> tuple[float, ...]:
    """Times of the GEMM with so many rows each."""
    return tuple(gemm_ns([dataclasses.replace(gemm, m=count) for count in rows], device).tolist())


def _sized(op: Communication, nbytes: int) -> Communication:
    return dataclasses.replace(op, nbytes=nbytes)  # type: ignore[arg-type]  # Collective or Copy


def _moving_ns(op: Communication, problem: Problem, device: Device) -> float:
    """The transfer with the device to itself; where several ways are open to it, the fastest."""
    if isinstance(op, Copy):
        link = device.host_link
        outward = op.destination is Memory.HOST
        return op.nbytes * 1e9 / (link.efficiency * (link.out_bandwidth if outward else link.in_bandwidth))
    assert isinstance(op, Collective)
    if not problem.by_engines:
        return float(collective_cost(op, device).time_ns)
    fastest = min(cost.link_nbytes for cost in collective_costs(op, device))
    return fastest * 1e9 / device.peer_link.out_bandwidth


def _alone(problem: Problem, device: Device) -> tuple[float, float]:
    """The GEMM and the transfer, each with the device to itself."""
    pair = problem.pair()
    assert isinstance(pair.compute, Gemm)
    return float(gemm_ns([pair.compute], device)[0]), _moving_ns(pair.communication, problem, device)
