"""Kernels that move bytes: copies by SMs, and collectives as one opaque library kernel.

Such a kernel is persistent: few CTAs, each with its share of the bytes, at the pace that one CTA reaches by
itself. Constants are the device's calibration where it has them.
"""

from __future__ import annotations

from dataclasses import dataclass

from conccl.core.hardware import Device
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective
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
) -> KernelCost:
    """A kernel whose CTAs move equal shares of the bytes, at ``cta_bandwidth`` (bytes/s) each or slower.

    ``least_ns`` is a time that the bytes take however many CTAs move them.
    """
    share = nbytes / ctas
    own_ns = share * 1e9 / cta_bandwidth
    packed = device.calibration.get("mover.sm_bandwidth_in_ctas", 1.25)
    work = CtaWork(
        latency_ns=latency_ns,
        least_ns=max(own_ns, least_ns),
        sm_ns=own_ns / packed,
        hbm_read_nbytes=share * traffic.hbm_read,
        hbm_write_nbytes=share * traffic.hbm_write,
        l2_nbytes=share * traffic.hbm,
        link_nbytes=share * traffic.link,
    )
    footprint = Footprint(threads=min(COPY_THREADS, device.threads_per_sm), registers=COPY_THREADS * 32)
    fit = max(1, footprint.fit(device))
    return KernelCost(
        name=name,
        groups=(CtaGroup(count=ctas, work=work),),
        footprint=footprint,
        ctas_per_sm=fit,
        fixed_ns=0.0,
        isolated_ns=max(1, round(latency_ns + work.least_ns)),
        uncertainty=0.2,
    )


def copy_cta_bandwidth(device: Device, /) -> float:
    """Bytes/s that one copying CTA moves, reading and writing HBM."""
    return device.calibration.get("mover.copy_cta_bandwidth", 0.5 * device.l2_bandwidth / device.sm_count)


def link_cta_bandwidth(device: Device, /) -> float:
    """Bytes/s over links that one communicating CTA moves."""
    return device.peer_link.out_bandwidth / device.calibration.get("mover.link_ctas", 16.0)


def collective_traffic(op: Collective, /) -> Traffic:
    """HBM traffic of a rank for each byte that it sends: what it sends is read, what it receives written.

    A reduction also reads what it adds to; the gather half of an all-reduce does not.
    """
    read = {CollectiveKind.REDUCE_SCATTER: 2.0, CollectiveKind.REDUCE: 2.0, CollectiveKind.ALL_REDUCE: 1.5}
    return Traffic(hbm_read=read.get(op.kind, 1.0), hbm_write=1.0, link=1.0)
