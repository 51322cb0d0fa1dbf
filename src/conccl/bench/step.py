"""How long a captured step takes: two steps in a row through an executor, of which the second counts.

The first starts on an idle GPU; from then on host and GPU run ahead of each other as they do in a loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from conccl.bench.profiled import profiled_ns
from conccl.core.hardware import Device
from conccl.core.kinds import DType
from conccl.core.ops import Attention, Convolution, Gemm, GroupedGemm, Op, Recurrent
from conccl.core.timeline import Timeline, Times
from conccl.costs.catalogue import system_of
from conccl.costs.constants import constant
from conccl.sim.executor import SimExecutor
from conccl.traces.breakdown import split
from conccl.workloads.captured import Captured, Modelled
from conccl.workloads.program import HOST_LANE, placed_op, steps_plan

STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmodelled:
    """An operator of which only the least traffic is known."""

    op: str
    share: float
    """Of the sum of kernel durations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One step of captured code."""

    iteration_ns: int
    """What a wall clock shows for one of many steps, host launches included."""
    kernel_ns: int
    """Sum of the durations of kernels, copies and memsets."""
    kernels: int
    exposed_communication_ns: int
    mfu: float | None
    """Operations of products over what matrix units could do in the time; None where there are none."""
    unmodelled: tuple[Unmodelled, ...]
    timeline: Timeline
    """The second step on the GPU, rows named by their operators."""
    durations_ns: Times
    """Of each captured kernel call."""


def simulate_step(captured: Captured, /, *, device: Device, gpus: int = 1) -> StepTime:
    """Time and make-up of a step on so many GPUs, all of which do the same."""
    eager = replace(device, kernel_launch_ns=round(constant(device, "host.gap_ns")))
    executor = SimExecutor(system=system_of(eager, gpus=gpus))
    whole = executor.run(steps_plan(captured, device=device, steps=STEPS))
    ends = [int(_of_step(whole, step).end_ns.max()) for step in range(STEPS)]
    iteration_ns = ends[-1] - ends[-2]
    step = _on_gpu(_of_step(whole, STEPS - 1))
    durations = _profiled(_durations(step, count=len(captured.kernels)), captured, device)
    kernel_ns = int(durations.sum())
    return StepTime(
        iteration_ns=iteration_ns,
        kernel_ns=kernel_ns,
        kernels=captured.launches,
        exposed_communication_ns=split(step).communication_only_ns,
        mfu=_mfu(captured, device, iteration_ns=iteration_ns),
        unmodelled=_unmodelled(captured, durations),
        timeline=_named(step, captured),
        durations_ns=durations,
    )


def busiest(captures: Sequence[Captured], /, *, device: Device, gpus: int) -> StepTime:
    """The step of the rank that takes longest; no rank waits for what another one has to do first."""
    steps = [simulate_step(captured, device=device, gpus=gpus) for captured in captures]
    return max(steps, key=lambda step: step.iteration_ns)


def _of_step(timeline: Timeline, step: int) -> Timeline:
    mine = np.array([name.startswith(f"{step}.") for name in timeline.names])
    return timeline.where(mine[timeline.name_id])


def _on_gpu(timeline: Timeline) -> Timeline:
    device = np.array([lane.stream != HOST_LANE for lane in timeline.lanes])
    return timeline.where(device[timeline.lane_id])


def _kernel_of_name(timeline: Timeline) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Index of the kernel call that each name stands for; -1 for host calls."""
    tails = [name.partition(".")[2] for name in timeline.names]
    return np.array([int(tail) if tail.isdigit() else -1 for tail in tails], dtype=np.int64)


def _durations(timeline: Timeline, *, count: int) -> Times:
    found = np.zeros(count, dtype=np.int64)
    found[_kernel_of_name(timeline)[timeline.name_id]] = timeline.duration_ns
    return found


def _profiled(
    durations: np.ndarray[tuple[int], np.dtype[np.int64]], captured: Captured, device: Device
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    rows = (
        profiled_ns(call.kernel, placed_op(call), int(duration_ns), device=device)
        for call, duration_ns in zip(captured.kernels, durations, strict=True)
    )
    return np.fromiter(rows, dtype=np.int64, count=len(captured.kernels))


def _named(timeline: Timeline, captured: Captured) -> Timeline:
    kernels = _kernel_of_name(timeline)
    names = tuple(captured.kernels[index].kernel.name if index >= 0 else "host" for index in kernels)
    return replace(timeline, names=names)


def _unmodelled(captured: Captured, durations: Times) -> tuple[Unmodelled, ...]:
    times: Counter[str] = Counter()
    for call, duration_ns in zip(captured.kernels, durations, strict=True):
        if call.kernel.modelled is Modelled.BOUND:
            times[call.kernel.name] += int(duration_ns)
    whole = max(1, int(durations.sum()))
    return tuple(Unmodelled(op=op, share=time_ns / whole) for op, time_ns in times.most_common())


def _mfu(captured: Captured, device: Device, *, iteration_ns: int) -> float | None:
    """Each product over the peak of its own type."""
    needed_s = sum(_least_s(call.kernel.op, device) for call in captured.kernels)
    return needed_s * 1e9 / iteration_ns if needed_s and iteration_ns else None


def _least_s(op: Op, device: Device) -> float:
    if not isinstance(op, Gemm | GroupedGemm | Attention | Convolution | Recurrent):
        return 0.0
    dtype = DType.TF32 if op.dtype is DType.FP32 and isinstance(op, Convolution | Recurrent) else op.dtype
    return op.flops / device.peak_flops.get(dtype, device.vector_flops)
