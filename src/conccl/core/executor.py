"""The seam: an executor turns a plan into a timeline, and nothing above it knows which one ran.

The simulator and the GPU are the real ones; `FakeExecutor` gives each task a duration that a test chose.
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
        """Carry out the plan; one row a task, named by its id."""
        ...


class FakeExecutor:
    """Runs tasks as soon as lane and dependencies allow, each for the duration given; nothing contends."""

    def __init__(self, *, durations_ns: Mapping[str, int]) -> None:
        self._durations_ns = durations_ns

    def run(self, plan: Plan, /) -> Timeline:
        """Carry out the plan; parts complete at even steps of their task's duration."""
        spans: dict[str, Span] = {}
        lane_free: dict[tuple[int, str], int] = {}
        waiting = list(plan.tasks)
        while waiting:
            blocked: set[tuple[int, str]] = set()
            left: list[Task] = []
            for task in waiting:
                lane = (task.rank, task.lane)
                if lane in blocked or any(dependency.task not in spans for dependency in task.after):
                    blocked.add(lane)
                    left.append(task)
                    continue
                start = max([lane_free.get(lane, 0), *(_complete_ns(plan, spans, task))])
                spans[task.id] = _span(task, start_ns=start, duration_ns=self._duration_ns(task))
                lane_free[lane] = spans[task.id].end_ns
            waiting = left
        return timeline_of(spans.values(), clock=Clock.SIMULATED)

    def _duration_ns(self, task: Task) -> int:
        if task.id not in self._durations_ns:
            raise PlanError(f"the fake executor was given no duration for task {task.id!r}.")
        return self._durations_ns[task.id]


def _complete_ns(plan: Plan, spans: Mapping[str, Span], task: Task) -> list[int]:
    """When each thing that the task waits for is complete."""
    times = []
    for dependency in task.after:
        span = spans[dependency.task]
        parts = max(1, len(plan.task(dependency.task).parts))
        done = parts if dependency.part is None else dependency.part + 1
        times.append(span.start_ns + span.duration_ns * done // parts)
    return times


def _span(task: Task, *, start_ns: int, duration_ns: int) -> Span:
    activity = Activity.COMPUTE if task.side is Side.COMPUTE else Activity.COMMUNICATION
    lane = Lane(rank=task.rank, device="fake", stream=task.lane)
    return Span(name=task.id, lane=lane, activity=activity, start_ns=start_ns, end_ns=start_ns + duration_ns)
