"""Copies between memories, and the moves and reductions that collectives are made of, done by SMs.

A copy to or from the host goes over the link; the time is the same by SMs or copy engines as far as the link
is what limits it. Contention is the simulator's business.
"""

from __future__ import annotations

from conccl.core.hardware import Device, Link
from conccl.core.kinds import Memory
from conccl.core.movement import Copy, Move, Reduce
from conccl.costs.constants import constant
from conccl.costs.elementwise import driver_copy
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, KernelCost, kernel_cost

CTAS = 16
"""CTAs that fill a link: one copies 33 GB/s on the H200 (measured, 2026-11-30)."""


def copy_kernels(op: Copy, device: Device, /) -> tuple[KernelCost, ...]:
    """Inside the GPU's memory a kernel of the driver; over a link one that the link paces."""
    if op.nbytes == 0:
        return ()
    if Memory.HOST in (op.source, op.destination):
        outwards = op.destination is Memory.HOST
        return (_linked(op.nbytes, device, device.host_link, outwards=outwards, name="host_copy"),)
    if Memory.PEER in (op.source, op.destination):
        outwards = op.destination is Memory.PEER
        return (_linked(op.nbytes, device, device.peer_link, outwards=outwards, name="peer_copy"),)
    return (driver_copy(op.nbytes, device),)


def move_kernels(op: Move, device: Device, /) -> tuple[KernelCost, ...]:
    """A move within a rank is a copy in its memory, between ranks one over their link."""
    if op.source.rank == op.destination.rank:
        return copy_kernels(Copy(nbytes=op.nbytes), device)
    return copy_kernels(Copy(nbytes=op.nbytes, destination=Memory.PEER), device)


def reduce_kernels(op: Reduce, device: Device, /) -> tuple[KernelCost, ...]:
    """Local sources come from HBM, others over the link."""
    nbytes = op.destination.nbytes
    if nbytes == 0:
        return ()
    remote = sum(1 for source in op.sources if source.rank != op.destination.rank)
    local = len(op.sources) - remote
    ctas = min(device.sm_count, -(-nbytes // 16_384))
    link = device.peer_link
    link_ns = remote * nbytes / (link.in_bandwidth * link.efficiency) * 1e9
    work = CtaWork(
        latency_ns=link.latency_ns if remote else 0.0,
        least_ns=link_ns,
        hbm_read_nbytes=local * nbytes / ctas,
        hbm_write_nbytes=nbytes / ctas,
        l2_nbytes=(len(op.sources) + 1) * nbytes / ctas,
        link_nbytes=remote * nbytes / ctas,
        flops=op.flops / ctas,
    )
    return (
        kernel_cost(
            "reduce",
            device=device,
            groups=(CtaGroup(count=ctas, work=work),),
            footprint=Footprint(threads=512, registers=512 * 32),
            ctas_per_sm=1,
            fixed_ns=constant(device, "driver_copy.start_ns"),
            uncertainty=constant(device, "collective.unmeasured_uncertainty"),
            model="collective",
        ),
    )


def _linked(nbytes: int, device: Device, link: Link, *, outwards: bool, name: str) -> KernelCost:
    bandwidth = (link.out_bandwidth if outwards else link.in_bandwidth) * link.efficiency
    start = "copy.host_ns" if name == "host_copy" else "copy.peer_ns"
    ctas = min(CTAS, device.sm_count)
    work = CtaWork(
        least_ns=nbytes / bandwidth * 1e9,
        hbm_read_nbytes=nbytes / ctas if outwards else 0.0,
        hbm_write_nbytes=0.0 if outwards else nbytes / ctas,
        l2_nbytes=nbytes / ctas,
        link_nbytes=nbytes / ctas,
    )
    return kernel_cost(
        name,
        device=device,
        groups=(CtaGroup(count=ctas, work=work),),
        footprint=Footprint(threads=512, registers=512 * 32),
        ctas_per_sm=1,
        fixed_ns=constant(device, start),
        uncertainty=constant(device, "copy.uncertainty"),
        model="copy",
    )
