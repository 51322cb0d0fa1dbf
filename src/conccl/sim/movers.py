"""Kernels that move bytes: copies by SMs, and collectives as one opaque library kernel.

Such a kernel is persistent: few CTAs, each with its share of the bytes, at the pace that one CTA reaches by
itself. Constants are the device's calibration where it has them.
"""

from __future__ import annotations

from dataclasses import dataclass

from conccl.core.hardware import Device
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective
from conccl.costs.constants import constant
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, KernelCost

COPY_CTAS = 16
"""CTAs of a copy kernel that nobody limits: enough to fill a host or peer link."""
COPY_THREADS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a byte that a mover moves costs, in bytes, beside the link."""

    hbm_read: float
    hbm_write: float
    link: float = 0.0
    """0: it stays within the GPU; 1: it crosses a link."""

    @property
    def hbm(self) -> float:
        """Both directions."""
        return self.hbm_read + self.hbm_write


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """A kernel that moves bytes, and the time of a CTA's share at its own pace."""

    kernel: KernelCost
    pace_ns: float


def mover(
    name: str,
    /,
    *,
    device: Device,
    nbytes: float,
    ctas: int,
    cta_bandwidth: float,
    traffic: Traffic,
    latency_ns: float,
    least_ns: float = 0.0,
    ctas_per_sm: int | None = None,
) -> Mover:
    """A kernel whose CTAs move equal shares of the bytes, at ``cta_bandwidth`` (bytes/s) each or slower.

    ``least_ns`` is a time that the bytes take however many CTAs move them.
    """
    share = nbytes / ctas
    own_ns = share * 1e9 / cta_bandwidth
    work = CtaWork(
        latency_ns=latency_ns,
        least_ns=max(own_ns, least_ns),
        sm_ns=share * 1e9 / copy_cta_bandwidth(device) / constant(device, "mover.ctas_of_sm"),
        hbm_read_nbytes=share * traffic.hbm_read,
        hbm_write_nbytes=share * traffic.hbm_write,
        hbm_share=constant(device, "mover.hbm_share"),
        l2_nbytes=share * traffic.hbm,
        link_nbytes=share * traffic.link,
    )
    footprint = _footprint(device, ctas_per_sm)
    kernel = KernelCost(
        name=name,
        groups=(CtaGroup(count=ctas, work=work),),
        footprint=footprint,
        ctas_per_sm=max(1, footprint.fit(device)),
        fixed_ns=0.0,
        isolated_ns=max(1, round(latency_ns + work.least_ns)),
        uncertainty=constant(device, "collective.unmeasured_uncertainty"),
    )
    return Mover(kernel=kernel, pace_ns=own_ns)


def _footprint(device: Device, ctas_per_sm: int | None) -> Footprint:
    """A limit on CTAs an SM is kept by taking its shared memory: then nothing else has room there either."""
    threads = min(COPY_THREADS, device.threads_per_sm)
    shared_nbytes = 0 if ctas_per_sm is None else device.shared_memory_nbytes // ctas_per_sm
    return Footprint(threads=threads, registers=threads * 32, shared_memory_nbytes=shared_nbytes)


def copy_cta_bandwidth(device: Device, /) -> float:
    """Bytes/s that one CTA copies, reading and writing HBM."""
    return constant(device, "mover.copy_cycle_nbytes") * device.light_clock_hz


def link_cta_bandwidth(device: Device, /) -> float:
    """Bytes/s that one CTA moves over a link."""
    return constant(device, "mover.link_cycle_nbytes") * device.light_clock_hz


def collective_traffic(op: Collective, /) -> Traffic:
    """HBM traffic of a rank for each byte that it sends: what it sends is read, what it receives written.

    A reduction also reads what it adds to; the gather half of an all-reduce does not.
    """
    read = {CollectiveKind.REDUCE_SCATTER: 2.0, CollectiveKind.REDUCE: 2.0, CollectiveKind.ALL_REDUCE: 1.5}
    return Traffic(hbm_read=read.get(op.kind, 1.0), hbm_write=1.0, link=1.0)
