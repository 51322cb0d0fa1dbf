"""The seam: an executor turns a plan into a timeline, and nothing above it knows which one ran.

The simulator and the GPU are the real ones; `FakeExecutor` gives each task a duration that a test chose.
Every executor passes one suite (``tests/executor_contract.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from conccl.core.errors import PlanError
from conccl.core.plan import Plan, Side, Task
from conccl.core.timeline import Activity, Clock, Lane, Span, Timeline, timeline_of


class Executor(Protocol):
    """Carries out plans."""

    def run(self, plan: Plan, /) -> Timeline:
        """Carry out the plan; one row a task, named by its id; refuse a fragment (`Plan.require_whole`)."""
        ...


class FakeExecutor:
    """Runs tasks as soon as lane and dependencies allow, each for the duration given; nothing contends."""

    def __init__(self, *, durations_ns: Mapping[str, int]) -> None:
        self._durations_ns = durations_ns

    def run(self, plan: Plan, /) -> Timeline:
        """Carry out the plan; the parts of a task take even shares of its duration."""
        plan.require_whole()
        steps = plan.steps()
        begin_ns = [0] * len(steps.task)
        end_ns = [0] * len(steps.task)
        for step in steps.order:
            position = steps.task[step]
            begin_ns[step] = max((end_ns[other] for other in steps.before[step]), default=0)
            part, parts = step - steps.first[position], steps.first[position + 1] - steps.first[position]
            duration_ns = self._duration_ns(plan.tasks[position])
            end_ns[step] = begin_ns[step] + duration_ns * (part + 1) // parts - duration_ns * part // parts
        spans = (
            _span(task, start_ns=begin_ns[steps.first[i]], end_ns=end_ns[steps.first[i + 1] - 1])
            for i, task in enumerate(plan.tasks)
        )
        return timeline_of(spans, clock=Clock.SIMULATED)

    def _duration_ns(self, task: Task) -> int:
        if task.id not in self._durations_ns:
            raise PlanError(f"the fake executor was given no duration for task {task.id!r}.")
        return self._durations_ns[task.id]


def _span(task: Task, *, start_ns: int, end_ns: int) -> Span:
    activity = Activity.COMPUTE if task.side is Side.COMPUTE else Activity.COMMUNICATION
    lane = Lane(rank=task.rank, device="fake", stream=task.lane)
    return Span(name=task.id, lane=lane, activity=activity, start_ns=start_ns, end_ns=end_ns)
