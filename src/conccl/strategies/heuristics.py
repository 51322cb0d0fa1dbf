"""Choices that need no run: launch order, SMs for communication, partition sizes, when to trim.

They are ConCCL's (arXiv:2412.14335) with cost models in the place of its measured tables: ascending order of
workgroups, and the partition that keeps the slower of the two slowed-down sides shortest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from conccl.core.hardware import Device
from conccl.core.kinds import Memory
from conccl.core.ops import Collective, Communication, Compute, Copy, Gemm, Op
from conccl.core.pair import Pair
from conccl.costs.collective import collective_cost
from conccl.costs.kernel import KernelCost, executed_ns, whole
from conccl.costs.kernels import kernels_of

KernelsOf = Callable[[Op, Device], Sequence[KernelCost]]

HOST_COPY_SMS = 8
"""CTAs, one an SM, with which a copy kernel fills a PCIe link."""

TRIM_TOLERANCE = 1.01
"""How much slower a trimmed op may be by its cost model; what trimming brings is in the caches."""

PEER_COPY_SMS = 16
"""The same for copies within a GPU or to a peer: past the knee of bandwidth against SMs."""


def communication_sms(op: Communication, device: Device, /) -> int:
    """SMs, one CTA each, that communication needs for its full pace."""
    if isinstance(op, Collective):
        needed = collective_cost(op, device).ctas if op.ranks > 1 else 1
    elif isinstance(op, Copy) and Memory.HOST in (op.source, op.destination):
        needed = HOST_COPY_SMS
    else:
        needed = PEER_COPY_SMS
    return max(1, min(needed, device.sm_count // 2))


def partition_sizes(device: Device, /) -> tuple[int, ...]:
    """Sizes of the communication's group worth trying: doubling from the smallest that the device allows."""
    sizes = []
    size = device.sm_group
    while size <= device.sm_count // 2:
        sizes.append(size)
        size *= 2
    return tuple(sizes)


def partition_sms(pair: Pair, device: Device, /, *, kernels_of: KernelsOf = kernels_of) -> int:
    """The communication's group that keeps ``max(Tg x slowdown, Tc x slowdown)`` smallest, then itself."""
    communication_ns = alone_ns(pair.communication, device, kernels_of=kernels_of)
    needed = communication_sms(pair.communication, device)

    def slower_ns(sms: int) -> tuple[float, int]:
        compute_ns = compute_ns_on(pair.compute, device, sms=device.sm_count - sms, kernels_of=kernels_of)
        return max(compute_ns, communication_ns * max(1.0, needed / sms)), sms

    return min(partition_sizes(device), key=slower_ns)


def alone_ns(op: Op, device: Device, /, *, kernels_of: KernelsOf = kernels_of) -> float:
    """The time of an op with the device to itself."""
    if isinstance(op, Collective):
        return float(collective_cost(op, device).time_ns) if op.ranks > 1 else 0.0
    if isinstance(op, Copy) and Memory.HOST in (op.source, op.destination):
        return op.nbytes * 1e9 / (device.host_link.out_bandwidth * device.host_link.efficiency)
    return float(sum(kernel.isolated_ns for kernel in kernels_of(op, device)))


def compute_ns_on(op: Compute, device: Device, /, *, sms: int, kernels_of: KernelsOf = kernels_of) -> float:
    """The time of a compute op on so many of the SMs and all of the bandwidth."""
    share = dataclasses.replace(whole(device), sms=sms)
    return sum(
        kernel.fixed_ns + executed_ns(kernel.groups, ctas_per_sm=kernel.ctas_per_sm, share=share)
        for kernel in kernels_of(op, device)
    )


def is_worth_trimming(
    op: Compute, device: Device, /, *, sms: int, kernels_of: KernelsOf = kernels_of
) -> bool:
    """Whether a memory-bound op can do without so many SMs: its waves must not become more for it."""
    if not is_memory_bound(op, device):
        return False
    fewer_ns = compute_ns_on(op, device, sms=device.sm_count - sms, kernels_of=kernels_of)
    return fewer_ns <= TRIM_TOLERANCE * compute_ns_on(op, device, sms=device.sm_count, kernels_of=kernels_of)


def launch_order(pair: Pair, device: Device, /, *, kernels_of: KernelsOf = kernels_of) -> tuple[Op, Op]:
    """The two ops in ascending order of workgroups: whoever needs few SMs gets them first."""
    compute_ctas = max((kernel.ctas for kernel in kernels_of(pair.compute, device)), default=0)
    if communication_sms(pair.communication, device) <= compute_ctas:
        return pair.communication, pair.compute
    return pair.compute, pair.communication


def is_memory_bound(op: Compute, device: Device, /) -> bool:
    """Whether HBM rather than the matrix or vector units sets its pace: intensity below the ridge."""
    rate = device.vector_flops
    if isinstance(op, Gemm):
        rate = device.peak_flops.get(op.dtype, device.vector_flops)
    bandwidth = device.hbm_bandwidth * device.hbm_efficiency
    return op.flops * bandwidth < op.nbytes * rate
