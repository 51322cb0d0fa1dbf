"""One order of a fragment's steps that every rank keeps to, and how many steps a dependency waits for."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from conccl.core.plan import Plan, Steps
from conccl.transports.program import Await


class Order:
    """A topological order of all steps; each rank carries out its own in this order.

    So a rank's progress is one number, how many of its steps are complete, and a dependency on another rank
    is a wait for that number. Nothing can hang: the first step of the whole order that is not complete has
    all that it waits for, and its rank has nothing before it.
    """

    def __init__(self, plan: Plan, /) -> None:
        self.steps: Steps = plan.steps()
        self.rank = [plan.tasks[position].rank for position in self.steps.task]
        """Step -> its rank."""
        self.sequence = self._sorted()
        """All steps, in order."""
        self.number = [0] * len(self.rank)
        """Step -> how many steps its rank has completed when it is complete."""
        come: dict[int, int] = {}
        for step in self.sequence:
            rank = self.rank[step]
            come[rank] = self.number[step] = come.get(rank, 0) + 1

    def waits(self, step: int, /) -> Iterator[Await]:
        """The other ranks' progress that a step waits for."""
        for other in self.steps.before[step]:
            if self.rank[other] != self.rank[step]:
                yield Await(rank=self.rank[other], steps=self.number[other])

    def _sorted(self) -> list[int]:
        """By how often word must have gone round between ranks; of equals first what others wait for."""
        steps = self.steps
        rounds = [0] * len(self.rank)
        awaited = [False] * len(self.rank)
        followers: list[list[int]] = [[] for _ in self.rank]
        for step in steps.order:
            for other in steps.before[step]:
                abroad = self.rank[other] != self.rank[step]
                awaited[other] |= abroad
                rounds[step] = max(rounds[step], rounds[other] + abroad)
                followers[other].append(step)
        waits = [len(before) for before in steps.before]
        ready = [(rounds[step], not awaited[step], step) for step, count in enumerate(waits) if count == 0]
        heapq.heapify(ready)
        sequence = []
        while ready:
            _, _, step = heapq.heappop(ready)
            sequence.append(step)
            for follower in followers[step]:
                waits[follower] -= 1
                if waits[follower] == 0:
                    heapq.heappush(ready, (rounds[follower], not awaited[follower], follower))
        return sequence
