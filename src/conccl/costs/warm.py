"""Ops that find operands in L2: the same kernels, with less to read from HBM.

A byte that L2 holds still passes from it to the SM, and only a part of what kernels wait for is HBM's
bandwidth: `SAVED` of its cost is saved. The same share is saved of what a step waits for memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conccl.core.hardware import Device
from conccl.core.ops import Warm
from conccl.costs.kernel import KernelCost, kernel_cost

SAVED = 0.6
"""Of what a byte from HBM costs, what one from L2 does not (elementwise kernels and norms within whole models
on the H200, 2026-11-30)."""


def warm_kernels(
    op: Warm, device: Device, /, *, kernels_of: Callable[[Any, Device], tuple[KernelCost, ...]]
) -> tuple[KernelCost, ...]:
    """The op's kernels, faster by what they need not read."""
    return tuple(_warmed(kernel, device, share=op.share) for kernel in kernels_of(op.op, device))


def _warmed(kernel: KernelCost, device: Device, *, share: float) -> KernelCost:
    cold = 1 - SAVED * share
    groups = tuple(
        replace(
            group,
            work=replace(
                group.work,
                hbm_read_nbytes=group.work.hbm_read_nbytes * cold,
                least_ns=group.work.least_ns * cold,
            ),
        )
        for group in kernel.groups
    )
    warmed = kernel_cost(
        kernel.name,
        device=device,
        groups=groups,
        footprint=kernel.footprint,
        fixed_ns=kernel.fixed_ns,
        uncertainty=kernel.uncertainty,
        model=kernel.model,
        ctas_per_sm=kernel.ctas_per_sm,
        l2_footprint_nbytes=kernel.l2_footprint_nbytes,
        cluster=kernel.cluster,
        workers=kernel.workers,
    )
    return warmed if warmed.isolated_ns < kernel.isolated_ns else kernel
