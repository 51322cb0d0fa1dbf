"""Pairs of kernels from a trace in the simulator: several compute kernels, communication beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conccl.core.errors import ExecutionError, InputError
from conccl.core.hardware import Device, System
from conccl.core.metrics import Overlap
from conccl.core.movement import Collective
from conccl.core.pair import Dependence, Pair
from conccl.core.plan import Dependency, Plan, Side
from conccl.core.timeline import Activity, Mask
from conccl.costs.catalogue import system_of
from conccl.costs.collective import collective_cost
from conccl.costs.kernels import kernels_of
from conccl.sim.executor import SimExecutor
from conccl.strategies.choices import Partitioned, PrioritizedPartitioned, strategy
from conccl.strategies.lower import isolated, lower

ERRORS = {"ce": 0.02, "sm": 0.10}
"""Mean relative error of simulated speedups by what moves the bytes: 32 pairs with copies by copy engines and
80 with copies by kernels, H200 (benchmarks/2026-11-30-simulated-remedies.md)."""

MEASURED_ON = "h200-sxm"
"""Where those were measured; elsewhere the cost models' own uncertainty counts where it is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """So many equal compute kernels one after the other, and communication that may run beside them."""

    pair: Pair
    kernels: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One strategy on such a row; times in ns, ends counted from where both may start."""

    compute_ns: int
    """Isolated."""
    communication_ns: int
    compute_end_ns: int
    communication_end_ns: int
    uncertainty: float
    """Relative error to expect of the speedup."""
    apart: bool = False
    """Each side has SMs of its own."""

    @property
    def overlap(self) -> Overlap:
        """The row as a whole."""
        return Overlap(
            compute_ns=self.compute_ns,
            communication_ns=self.communication_ns,
            concurrent_ns=max(self.compute_end_ns, self.communication_end_ns),
        )

    @property
    def rates(self) -> tuple[float, float]:
        """Of compute and of communication: isolated time that is done in a ns in which both run.

        Until one of them ends; what is left of the other then takes its time alone, save where each has SMs
        of its own: there nothing changes when the other ends.
        """
        if self.apart:
            return self.compute_ns / self.compute_end_ns, self.communication_ns / self.communication_end_ns
        both_ns = max(1, min(self.compute_end_ns, self.communication_end_ns))
        left = (self.compute_end_ns - both_ns, self.communication_end_ns - both_ns)
        done = (self.compute_ns - left[0], self.communication_ns - left[1])
        return max(0.0, done[0] / both_ns), max(0.0, done[1] / both_ns)


def simulate(row: Row, names: Sequence[str], /, *, device: Device) -> dict[str, Outcome]:
    """The strategies of these names that can be lowered for it and run on the device."""
    moved = row.pair.communication
    system = system_of(device, gpus=moved.ranks if isinstance(moved, Collective) else 1)
    executor = SimExecutor(system=system)
    alone = _in_a_row(isolated(row.pair.compute, side=Side.COMPUTE, system=system), row)
    compute_ns = executor.run(alone).span_ns
    communication_ns = executor.run(isolated(moved, side=Side.COMMUNICATION, system=system)).span_ns
    found = {}
    for name in names:
        ends = _ends_ns(executor, row, name, system)
        if ends is not None:
            found[name] = Outcome(
                compute_ns=compute_ns,
                communication_ns=communication_ns,
                compute_end_ns=ends[0],
                communication_end_ns=ends[1],
                uncertainty=_uncertainty(row.pair, name, device),
                apart=isinstance(strategy(name).sharing, (Partitioned, PrioritizedPartitioned)),
            )
    return found


def _ends_ns(executor: SimExecutor, row: Row, name: str, system: System, /) -> tuple[int, int] | None:
    """When compute and communication are over; None where the strategy has no meaning here."""
    try:
        timeline = executor.run(_in_a_row(lower(row.pair, strategy(name), system=system), row))
    except (InputError, ExecutionError):  # such as a dependent strategy of an op that is no GEMM
        return None
    start_ns = int(timeline.start_ns.min())

    def end_ns(side: Mask) -> int:
        return int(np.max(timeline.end_ns[side], initial=start_ns)) - start_ns

    computing = timeline.activity == Activity.COMPUTE
    return end_ns(computing), end_ns(~computing)


def _in_a_row(plan: Plan, row: Row, /) -> Plan:
    """The plan with each compute task repeated behind itself; what waited for it waits for the last."""
    if row.kernels == 1:
        return plan
    if row.pair.dependence is not Dependence.NONE:
        raise InputError("only computation that nothing waits for can be repeated.")
    tasks = []
    last = {}
    for task in plan.tasks:
        if task.side is Side.COMPUTE:
            copies = [
                dataclasses.replace(task, id=f"{task.id}.{place}", after=() if place else task.after)
                for place in range(row.kernels)
            ]
            last[task.id] = copies[-1].id
            tasks += copies
        else:
            tasks.append(task)
    return dataclasses.replace(
        plan,
        tasks=tuple(
            dataclasses.replace(task, after=tuple(_renamed(dependency, last) for dependency in task.after))
            for task in tasks
        ),
    )


def _renamed(dependency: Dependency, names: dict[str, str], /) -> Dependency:
    return dataclasses.replace(dependency, task=names.get(dependency.task, dependency.task))


def _uncertainty(pair: Pair, name: str, device: Device, /) -> float:
    value = strategy(name)
    own = ERRORS[value.engine.value]
    if device.name == MEASURED_ON:
        return own
    models = [kernel.uncertainty for kernel in kernels_of(pair.compute, device)]
    if isinstance(pair.communication, Collective):
        models.append(collective_cost(pair.communication, device).uncertainty)
    return max(own, *models)
