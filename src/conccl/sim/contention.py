"""What the kernels of one GPU leave each other: L2, bandwidth in flight, latency, ways that others fill.

Everything here is worked out anew when a kernel's CTAs start or leave. Constants are in `costs.constants`
("contention"), with what they were measured on.
"""

from __future__ import annotations

from collections.abc import Sequence

from conccl.core.hardware import Device
from conccl.costs.constants import constant
from conccl.costs.kernel import KernelCost
from conccl.sim.flow import Ended, Flow, Network
from conccl.sim.residents import Cohort, Launch, SmClass
from conccl.sim.shares import Resource


class Contention:
    """Weighs the kernels of one GPU against each other."""

    def __init__(
        self, *, network: Network, device: Device, hbm: Resource, l2: Resource, speed: float = 1.0
    ) -> None:
        self._network = network
        self._device = device
        self._hbm = hbm
        self._l2 = l2
        self._speed = speed
        in_flight = constant(device, "contention.sm_cycle_nbytes") * device.light_clock_hz / 1e9
        self._sm_in_flight = {
            True: in_flight,
            False: in_flight * constant(device, "contention.register_share"),
        }
        """Bytes a nanosecond; True: of kernels that load into shared memory."""
        self._blocking = constant(device, "contention.blocking")
        self._hbm_alone = hbm.capacity
        self._full_house = constant(device, "contention.full_house")
        self._longer_latency = constant(device, "contention.latency")

    def weigh(self, launches: Sequence[Launch], classes: Sequence[SmClass], /) -> None:
        """Work out anew what the kernels leave each other."""
        self._share_l2(launches)
        self._hinder(launches, classes)

    def flow(self, cohort: Cohort, /, *, ended: Ended) -> Flow:
        """What the cohort asks for, with nobody beside it; `weigh` then says what the others leave it."""
        launch, work, speed = cohort.launch, cohort.work, self._speed
        share = 1.0 / launch.pieces
        ctas = cohort.ctas * share
        amounts = {
            cohort.class_.units: ctas * work.sm_ns / speed,
            self._hbm: ctas * work.hbm_nbytes * launch.hbm_factor,
            self._l2: ctas * work.l2_nbytes,
        }
        if work.hbm_share < 1.0:  # what others may have of HBM even so
            amounts[launch.hbm] = ctas * work.hbm_taken_nbytes
            launch.hbm.capacity = self._hbm.capacity
        for resource, use in launch.links:
            amounts[resource] = amounts.get(resource, 0.0) + ctas * work.link_nbytes * use
        uses = [(resource, amount) for resource, amount in amounts.items() if amount > 0]
        own_ns = max(work.least_ns, work.sm_ns) * share / speed
        shared_ns = max((amount / resource.capacity for resource, amount in uses), default=0.0)
        cohort.unhindered_ns = max(own_ns, shared_ns, 1e-9)
        cohort.in_flight = self._in_flight(cohort)
        return Flow(
            latency_ns=work.latency_ns * share / speed,
            cap=1.0 / cohort.unhindered_ns,
            weight=launch.weight * cohort.in_flight,
            uses=uses,
            goal=1,
            ended=ended,
        )

    def _share_l2(self, launches: Sequence[Launch]) -> None:
        """Work out anew how much of what kernels reuse stays in L2 beside the others' traffic."""
        running = [launch for launch in launches if launch.cohorts]
        filling = sum(_filling(launch.kernel) for launch in running)
        for launch in running:
            factor = _hbm_factor(launch.kernel, l2_nbytes=self._device.l2_nbytes, filling=filling)
            if abs(factor - launch.hbm_factor) > 1e-6:
                change, launch.hbm_factor = factor / launch.hbm_factor, factor
                for flow in [cohort.flow for cohort in launch.cohorts if cohort.flow is not None]:
                    flow.uses = [
                        (one, amount * change if one is self._hbm else amount) for one, amount in flow.uses
                    ]
                    self._network.touch(flow)

    def _hinder(self, launches: Sequence[Launch], classes: Sequence[SmClass]) -> None:
        """Work out anew how fast cohorts may go at most beside the others."""
        self._network.change_capacity(
            self._hbm, self._hbm_alone * (1.0 if self._is_full(classes) else self._full_house)
        )
        blocked = 1.0 / (1.0 + self._blocking * max(0.0, _oversubscribed(launches) - 1.0))
        for launch in launches:
            slower = 1.0 + self._longer_latency * self._l2_load(launches, besides=launch)
            for cohort in launch.cohorts:
                if cohort.flow is not None:
                    spare = max(1.0, cohort.in_flight * cohort.unhindered_ns)
                    cap = min(1.0, spare / slower) / cohort.unhindered_ns
                    cap *= 1.0 if launch.links else blocked
                    if abs(cap - cohort.flow.cap) > 1e-9 * cap:
                        cohort.flow.cap = cap
                        self._network.touch(cohort.flow)

    def _is_full(self, classes: Sequence[SmClass]) -> bool:
        """Whether every SM computes: then caches thrash more, on some devices (`contention.full_house`)."""
        return self._full_house == 1.0 or all(
            any(cohort.launch.pace_ns is None for cohort in class_.cohorts) for class_ in classes
        )

    def _l2_load(self, launches: Sequence[Launch], *, besides: Launch) -> float:
        """How much of L2's bandwidth the other kernels use where nothing hinders them."""
        used = sum(
            cohort.ctas * cohort.work.l2_nbytes / launch.pieces / cohort.unhindered_ns
            for launch in launches
            if launch is not besides
            for cohort in launch.cohorts
            if cohort.flow is not None
        )
        return min(1.0, used / self._l2.capacity)

    def _in_flight(self, cohort: Cohort) -> float:
        """Bodies a nanosecond that a CTA's requests in flight are good for: its claim where memory is short.

        Bytes in flight are bandwidth times latency (Little). An SM can have so many, be they one CTA's or
        shared by several; kernels that move bytes have in flight what their own pace takes.
        """
        launch, work = cohort.launch, cohort.work
        if launch.pace_ns is not None:
            return launch.pieces / max(launch.pace_ns, 1e-9)
        nbytes = max(work.l2_nbytes, work.hbm_nbytes) * launch.ctas_per_sm / launch.pieces
        if nbytes < 1.0:
            return 1.0 / cohort.unhindered_ns
        return self._sm_in_flight[launch.kernel.footprint.shared_memory_nbytes > 0] / nbytes


def _oversubscribed(launches: Sequence[Launch]) -> float:
    """How many times what a link carries SMs ask of it: requests that pile up in the way of others'."""
    asked: dict[Resource, float] = {}
    for launch in launches:
        for link, use in launch.links:
            pace = sum(
                cohort.ctas * cohort.work.link_nbytes / max(1.0, launch.pace_ns or 0.0)
                for cohort in launch.cohorts
            )
            asked[link] = asked.get(link, 0.0) + pace * use
    return max((pace / link.capacity for link, pace in asked.items()), default=0.0)


def _filling(kernel: KernelCost) -> float:
    """Bytes a nanosecond that a kernel brings into L2."""
    return kernel.hbm_nbytes / kernel.isolated_ns


def _hbm_factor(kernel: KernelCost, *, l2_nbytes: int, filling: float) -> float:
    """How much more HBM traffic a kernel has where all together bring ``filling`` into L2.

    A line that is used again stays if it is, before L2 has been filled anew: so each kernel has L2 in
    proportion to what it brings in, and misses what of its footprint is beyond that.
    """
    own = _filling(kernel)
    if kernel.l2_footprint_nbytes <= 0 or own <= 0:
        return 1.0
    share = l2_nbytes * own / filling
    missing = max(0.0, 1.0 - share / min(kernel.l2_footprint_nbytes, l2_nbytes))
    return 1.0 + missing * max(0.0, kernel.l2_nbytes / kernel.hbm_nbytes - 1.0)
