"""What a set takes when it runs by a choice: the seam to executors, and the simulated side of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from conccl.bench.executors import device_digest
from conccl.core.hardware import Device
from conccl.core.measurement import Environment, Measurement
from conccl.core.ops import Gemm, GroupedGemm, Op
from conccl.core.plan import Plan, Task
from conccl.costs.catalogue import system_of
from conccl.costs.gemm import gemm_kernels_tuned_for
from conccl.costs.kernel import KernelCost, executed_ns, whole
from conccl.costs.kernels import kernels_of
from conccl.sim.executor import SimExecutor
from conccl.tune.gemms.choice import Budget, Choice, GemmSet, KernelChoice

FREE = "free"
"""The partition of SMs that others leave."""


class Runner(Protocol):
    """Runs sets of GEMMs on one device."""

    @property
    def environment(self) -> Environment:
        """Where and with what."""
        ...

    def measure(self, gemms: GemmSet, choice: Choice, /, *, label: str) -> Measurement:
        """All samples of the time from the first start to the last end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRunner:
    """The simulator as a device to tune on; ``busy_sms`` are taken by someone else."""

    device: Device
    busy_sms: int = 0

    @property
    def environment(self) -> Environment:
        """Where and with what."""
        return Environment(
            executor="sim", device=self.device.name, versions={"device": device_digest(self.device)}
        )

    def measure(self, gemms: GemmSet, choice: Choice, /, *, label: str = "") -> Measurement:
        """The one sample: a simulation gives the same every time."""
        plan, by_op = plan_of(gemms, choice, device=self.device, busy_sms=self.busy_sms)
        executor = SimExecutor(
            system=system_of(self.device, gpus=1),
            kernels_of=lambda op, device: by_op[op] if op in by_op else kernels_of(op, device),
        )
        return Measurement(
            label=label or gemms.name, samples_ns=(executor.run(plan).span_ns,), environment=self.environment
        )


def plan_of(
    gemms: GemmSet, choice: Choice, /, *, device: Device, busy_sms: int = 0
) -> tuple[Plan, dict[Op, tuple[KernelCost, ...]]]:
    """The plan that a choice is, and the kernels of its ops."""
    free = _free(device, busy_sms)
    partitions = {} if free is None else {FREE: free}
    partition = None if free is None else FREE
    if choice.grouped:
        together = Task(id="grouped", op=_grouped(gemms), partition=partition)
        return Plan(tasks=(together,), partitions=partitions), {}
    tasks = []
    by_op: dict[Op, tuple[KernelCost, ...]] = {}
    for index, (op, kernel) in enumerate(zip(gemms.gemms, choice.kernels, strict=True)):
        by_op[op] = gemm_kernels_tuned_for(op, device, kernel.part)
        tasks.append(
            Task(
                id=f"{index}",
                op=op,
                lane=f"{index % choice.degree}",
                sms=_budget(kernel, device),
                partition=partition,
            )
        )
    return Plan(tasks=tuple(tasks), partitions=partitions), by_op


def _grouped(gemms: GemmSet) -> GroupedGemm:
    first = gemms.gemms[0]
    return GroupedGemm(rows=tuple(one.m for one in gemms.gemms), n=first.n, k=first.k, dtype=first.dtype)


def _free(device: Device, busy_sms: int) -> int | None:
    """SMs that are left, in whole groups; None: all."""
    if busy_sms <= 0:
        return None
    left = (device.sm_count - busy_sms) // device.sm_group * device.sm_group
    return max(device.sm_group, left)


def _budget(kernel: KernelChoice, device: Device) -> int | None:
    return device.sm_count // kernel.part if kernel.budget is Budget.SHARE else None


def bound_ns(gemms: GemmSet, choice: Choice, /, *, device: Device) -> float:
    """A quick estimate without a simulation: the CTAs of each group of GEMMs as if they were one kernel's."""
    if choice.grouped:
        return float(sum(kernel.isolated_ns for kernel in kernels_of(_grouped(gemms), device)))
    total = 0.0
    for first_index in range(0, len(gemms), choice.degree):
        members = range(first_index, min(first_index + choice.degree, len(gemms)))
        total += _group_ns(tuple((gemms.gemms[index], choice.kernels[index]) for index in members), device)
    return total


@functools.lru_cache(maxsize=1 << 14)
def _group_ns(members: Sequence[tuple[Gemm, KernelChoice]], device: Device) -> float:
    kernels = [gemm_kernels_tuned_for(op, device, kernel.part) for op, kernel in members]
    mains = [one[0] for one in kernels]
    groups = tuple(group for kernel in mains for group in kernel.groups)
    resident = max(kernel.ctas_per_sm for kernel in mains)
    body_ns = executed_ns(groups, ctas_per_sm=resident, share=whole(device))
    limited_ns = max(
        _within_ns(kernel, _budget(choice, device), device)
        for kernel, (_, choice) in zip(mains, members, strict=True)
    )
    added_ns = max(sum(kernel.isolated_ns for kernel in one[1:]) for one in kernels)
    return max(body_ns, limited_ns) + max(kernel.fixed_ns for kernel in mains) + added_ns


def _within_ns(kernel: KernelCost, sms: int | None, device: Device) -> float:
    """The kernel's CTAs on so many SMs."""
    if sms is None:
        return 0.0
    share = dataclasses.replace(whole(device), sms=sms)
    return executed_ns(kernel.groups, ctas_per_sm=kernel.ctas_per_sm, share=share)
