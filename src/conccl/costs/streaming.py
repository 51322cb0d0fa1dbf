"""Kernels that stream through memory: their time is bytes over bandwidth, or instructions over issue slots.

The CTAs of such a kernel are many and short. Each has a latency of its own (a reduction across its threads,
say), during which it uses nothing shared, and a body of one or more steps, each of which takes at least a
memory latency; meanwhile the other CTAs' bytes arrive. A kind of kernel whose accesses never reach the best
kernels' bandwidth has an ``hbm_share`` below 1. The constants of a kind are named after it.
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
    elements: float = 0.0
    """Of all CTAs: what the kind's instructions are counted for."""
    steps: float = 1.0
    """Memory latencies one after the other in a CTA."""
    instructions: float | None = None
    """For each element, lanes counted one by one; None: the kind's."""
    registers: int = 32
    """For each thread."""
    shared_memory_nbytes: int = 0


def streaming_kernel(kind: str, stream: Stream, device: Device, /, *, name: str = "") -> KernelCost:
    """A kernel of this kind ("contiguous", "layer_norm", ...: see `constants.STREAMS`)."""
    footprint = Footprint(
        threads=min(stream.threads, device.threads_per_sm),
        registers=min(stream.registers * stream.threads, device.registers_per_sm),
        shared_memory_nbytes=min(stream.shared_memory_nbytes, device.shared_memory_nbytes),
    )
    nbytes = stream.read_nbytes + stream.written_nbytes
    share = constant(device, f"{kind}.hbm_share")
    memory_ns = nbytes / (device.hbm_bandwidth * device.hbm_efficiency * share) * 1e9
    busy_ns = constant(device, "stream.busy_ns")
    instructions = stream.instructions
    if instructions is None:
        instructions = constant(device, f"{kind}.instructions")
    issued = device.vector_flops / 2 / device.sm_count / 1e9
    work = CtaWork(
        latency_ns=constant(device, f"{kind}.cta_ns"),
        least_ns=stream.steps * constant(device, f"{kind}.step_ns"),
        sm_ns=instructions * stream.elements / stream.ctas / issued,
        hbm_read_nbytes=stream.read_nbytes / stream.ctas,
        hbm_write_nbytes=stream.written_nbytes / stream.ctas,
        hbm_share=share,
        l2_nbytes=nbytes / stream.ctas,
        flops=stream.elements / stream.ctas,
    )
    return kernel_cost(
        name or kind,
        device=device,
        groups=(CtaGroup(count=stream.ctas, work=work),),
        footprint=footprint,
        fixed_ns=constant(device, f"{kind}.start_ns") + busy_ns * memory_ns / (memory_ns + busy_ns + 1),
        uncertainty=constant(device, f"{kind}.uncertainty"),
        model=kind,
    )
