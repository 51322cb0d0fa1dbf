"""The kernel time of a captured step from a few of its kernels: chosen on one device, simulated on any other.

A step of ten thousand kernels is thousands of times the same few; a simulator that prices only those says
what all of them take. How well is seen by simulating them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conccl.bench.step import simulate_step
from conccl.core.errors import InputError
from conccl.core.hardware import Device
from conccl.core.plan import Plan, Task
from conccl.core.timeline import Times
from conccl.costs.catalogue import system_of
from conccl.sampling.kernels import KernelSample
from conccl.sim.executor import SimExecutor
from conccl.workloads.captured import Captured
from conccl.workloads.program import placed_op


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The kernel time of a whole step on one device, from the chosen kernels."""

    device: str
    projected_ns: int
    actual_ns: int | None
    """From all kernels; None where only the chosen ones were simulated."""

    @property
    def error_percent(self) -> float | None:
        """How far the projection is off all kernels' time, without sign."""
        if not self.actual_ns:
            return None
        return 100 * abs(self.projected_ns - self.actual_ns) / self.actual_ns


def simulated_kernels(captured: Captured, /, *, device: Device) -> tuple[tuple[str, ...], Times]:
    """What each kernel call of a step is (equal names: the same work), and its simulated duration in ns."""
    names = tuple(f"{call.kernel.name} {placed_op(call)!r}" for call in captured.kernels)
    return names, simulate_step(captured, device=device).durations_ns


def scaled(captured: Captured, sample: KernelSample, /, *, device: Device) -> Scaled:
    """The step's kernel time on a device, only the chosen kernels simulated there, one after the other.

    ``captured`` is the step as it is on that device; it must launch the kernels that were chosen from.
    """
    if len(captured.kernels) != sample.kernels:
        raise InputError(
            f"the step has {len(captured.kernels)} kernels on {device.name}, {sample.kernels} where they were"
            " chosen. Choose on a device that runs the same kernels."
        )
    durations = chosen_durations(captured, [point.index for point in sample.points], device=device)
    return Scaled(device=device.name, projected_ns=sample.scaled_ns(durations), actual_ns=None)


def chosen_durations(captured: Captured, chosen: Sequence[int], /, *, device: Device) -> list[int]:
    """Simulated durations of some kernel calls in ns."""
    plan = Plan(tasks=tuple(Task(id=str(index), op=placed_op(captured.kernels[index])) for index in chosen))
    timeline = SimExecutor(system=system_of(device, gpus=1)).run(plan)
    by_name = np.zeros(len(timeline.names), dtype=np.int64)
    by_name[timeline.name_id] = timeline.duration_ns
    found = dict(zip(timeline.names, by_name.tolist(), strict=True))
    return [found[str(index)] for index in chosen]
