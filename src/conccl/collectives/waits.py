"""Steps of lanes and what each must wait for: dependencies, less those that a lane has already."""

from __future__ import annotations

from collections.abc import Iterable

from conccl.core.plan import Dependency


class Waits:
    """Numbers the steps (parts of tasks) of a fragment in the order in which they are listed.

    Steps of one lane run in that order, so of several steps of a lane only the last has to be waited for, and
    what a lane has waited for once it need not wait for again.
    """

    def __init__(self) -> None:
        self._task: list[str] = []
        self._part: list[int | None] = []
        self._lane: list[int] = []
        self._lanes: dict[tuple[int, str], int] = {}
        self._known: list[dict[int, int]] = []
        self._instead: dict[int, int] = {}
        self._flagged = 0

    def lane(self, rank: int, name: str, /) -> int:
        """The number of a rank's lane."""
        number = self._lanes.get((rank, name))
        if number is None:
            number = self._lanes[rank, name] = len(self._known)
            self._known.append({})
        return number

    def add(self, task: str, /, *, lane: int, parts: int) -> int:
        """Number the parts of a task; returns the first part's step."""
        step = len(self._lane)
        if parts == 1:
            self._task.append(task)
            self._part.append(None)
            self._lane.append(lane)
        else:
            self._task.extend([task] * parts)
            self._part.extend([*range(parts - 1), None])  # the last part is the whole
            self._lane.extend([lane] * parts)
        return step

    def flag_lanes(self) -> None:
        """Each step since the last call is known by the last of its lane from now on."""
        batch = range(self._flagged, len(self._lane))
        last = {self._lane[step]: step for step in batch}
        self._instead.update((step, last[self._lane[step]]) for step in batch)
        self._flagged = len(self._lane)

    def resolve(self, awaited: Iterable[int], after: list[Dependency], /, *, lane: int, part: int) -> None:
        """Add to ``after`` what this part of a task on this lane has to wait for and does not know yet."""
        lanes, known, instead = self._lane, self._known[lane], self._instead
        latest: dict[int, int] = {}
        for one in awaited:
            step = instead.get(one, one) if instead else one
            other = lanes[step]
            if other != lane and step > known.get(other, -1):
                known[other] = latest[other] = step
        after.extend(
            Dependency(task=self._task[step], part=self._part[step], needed_by=part or None)
            for step in latest.values()
        )
