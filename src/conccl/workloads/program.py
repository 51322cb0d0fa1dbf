"""A captured step as a plan: kernels on their streams, each behind the host call that launches it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from conccl.core.hardware import Device
from conccl.core.ops import (
    Collective,
    Copy,
    Elementwise,
    ForEach,
    HostWork,
    Memory,
    Op,
    Pooling,
    Reduction,
    Rowwise,
    Warm,
)
from conccl.core.plan import Dependency, Engine, Plan, Side, Task
from conccl.costs.constants import constant
from conccl.workloads.captured import Captured, HostCall, KernelCall, Phase
from conccl.workloads.host import host_ns

HOST_LANE = "host"
"""The lane of a rank's host; its tasks use nothing of the GPU."""

STREAMING = Elementwise | ForEach | Pooling | Reduction | Rowwise
"""Ops whose kernels wait for what they read, and are faster where L2 holds it."""


def placed_op(call: KernelCall, /) -> Op:
    """The op with what it finds in L2."""
    op = call.kernel.op
    if call.cached and isinstance(op, get_args(STREAMING)):
        return Warm(op=op, share=call.cached)
    return op


def steps_plan(captured: Captured, /, *, device: Device, steps: int) -> Plan:
    """So many steps one after the other; ids are "step.h3" for host calls and "step.7" for kernels."""
    tasks: list[Task] = []
    last_on = {call.lane: index for index, call in enumerate(captured.kernels)}
    for step in range(steps):
        tasks.extend(_Step(captured=captured, device=device, number=step, last_on=last_on).tasks())
    return Plan(tasks=tuple(tasks))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    captured: Captured
    device: Device
    number: int
    last_on: dict[str, int]
    """Lane -> its last kernel call."""

    def tasks(self) -> Iterator[Task]:
        """Host calls that launch nothing are joined with the next one that does."""
        trains = any(call.phase is Phase.BACKWARD for call in self.captured.calls)
        waiting_ns = constant(self.device, "host.step_ns") if trains else 0.0
        awaited: tuple[int, ...] = ()
        for index, call in enumerate(self.captured.calls):
            waiting_ns += host_ns(call, self.captured, self.device)
            if call.count:
                yield self._host(index, waiting_ns, awaited)
                waiting_ns, awaited = 0.0, ()
                yield from self._kernels(index, call)
            if call.waits_for:
                if awaited or waiting_ns:
                    yield self._host(f"{index}w", waiting_ns, awaited)
                waiting_ns, awaited = 0.0, call.waits_for
        yield self._host("end", waiting_ns, awaited)

    def _host(self, index: int | str, time_ns: float, awaited: tuple[int, ...]) -> Task:
        return Task(
            id=f"{self.number}.h{index}",
            op=HostWork(duration_ns=round(time_ns)),
            lane=HOST_LANE,
            after=tuple(Dependency(task=self._id(kernel)) for kernel in awaited),
        )

    def _kernels(self, index: int, call: HostCall) -> Iterator[Task]:
        launched = Dependency(task=f"{self.number}.h{index}")
        last_on = self.last_on
        for position in range(call.first, call.first + call.count):
            kernel = self.captured.kernels[position]
            op = placed_op(kernel)
            yield Task(
                id=self._id(position),
                op=op,
                lane=kernel.lane,
                side=Side.COMMUNICATION if isinstance(op, Collective) else Side.COMPUTE,
                engine=Engine.COPY_ENGINE if _crosses_the_link(op) else Engine.SM,
                after=(
                    launched,
                    *(Dependency(task=self._id(other)) for other in kernel.after),
                    *(
                        Dependency(task=f"{self.number - 1}.{last_on[lane]}")
                        for lane in kernel.behind
                        if self.number and lane in last_on
                    ),
                ),
            )

    def _id(self, kernel: int) -> str:
        return f"{self.number}.{kernel}"


def _crosses_the_link(op: Op) -> bool:
    return isinstance(op, Copy) and Memory.HOST in (op.source, op.destination)
