"""Kernels that stream through memory: their time is bytes over bandwidth, or instructions over issue slots.

CTAs of such a kernel are many and short; while some wait for memory others' bytes arrive, so a memory latency
is the least a CTA takes and not an addition to it. A kind of kernel that never reaches the best kernels'
bandwidth (reads and writes that disturb each other, few bytes in flight) has a ``share`` below 1 of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from conccl.core.hardware import Device
from conccl.costs.constants import constant
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, KernelCost, kernel_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What a streaming kernel goes through."""

    read_nbytes: float
    written_nbytes: float
    ctas: int
    threads: int
    instructions: float = 0.0
    """Of all threads together; 0: too few to matter."""
    registers: int = 32
    """For each thread."""
    shared_memory_nbytes: int = 0
    latencies: float = 1.0
    """Memory latencies one after the other in a CTA: passes over its data that depend on each other."""


def streaming_kernel(name: str, stream: Stream, device: Device, /, *, model: str) -> KernelCost:
    """The kernel, with the constants of its model ("elementwise", "rowwise", ...)."""
    footprint = Footprint(
        threads=stream.threads,
        registers=stream.registers * stream.threads,
        shared_memory_nbytes=stream.shared_memory_nbytes,
    )
    issue = device.vector_flops / 2 / device.sm_count * constant(device, f"{model}.issue_share")
    work = CtaWork(
        least_ns=stream.latencies * constant(device, f"{model}.latency_ns"),
        sm_ns=stream.instructions / stream.ctas / issue * 1e9,
        hbm_read_nbytes=stream.read_nbytes / stream.ctas,
        hbm_write_nbytes=stream.written_nbytes / stream.ctas,
        hbm_share=constant(device, f"{model}.share"),
        l2_nbytes=(stream.read_nbytes + stream.written_nbytes) / stream.ctas,
        flops=stream.instructions / stream.ctas,
    )
    return kernel_cost(
        name,
        device=device,
        groups=(CtaGroup(count=stream.ctas, work=work),),
        footprint=footprint,
        fixed_ns=constant(device, f"{model}.fixed_ns"),
        uncertainty=constant(device, f"{model}.uncertainty"),
    )
