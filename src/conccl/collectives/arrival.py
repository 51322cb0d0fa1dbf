"""What a consumer of a collective's output waits for: the parts of tasks that bring given bytes."""

from __future__ import annotations

from conccl.collectives.hazards import Segments
from conccl.collectives.ordering import accesses
from conccl.core.ops import Region
from conccl.core.plan import Dependency, Plan

_NOBODY = -1


class Arrivals:
    """Answers which parts of a fragment's tasks must be complete before bytes of a buffer may be read.

    The counterpart of `Embedding.ready`: with it a fused GEMM waits for the blocks of its tiles and not for
    the whole collective. Made once a fragment; the fragment lists writers of the same bytes in their order.
    """

    def __init__(self, fragment: Plan, /) -> None:
        steps = fragment.steps()
        self._tasks = fragment.tasks
        self._task_of, self._first = steps.task, steps.first
        self._segments: dict[tuple[int, str], Segments] = {}
        for step in range(len(steps.task)):
            for access in accesses(fragment, steps, step):
                if access.writes:
                    key = (access.rank, access.buffer)
                    segments = self._segments.setdefault(key, Segments(writer=_NOBODY))
                    segments.write(access.start, access.stop, access=step, waits=[])

    def of(self, region: Region, /) -> tuple[Dependency, ...]:
        """What brings these bytes, the last part of each lane that does; empty where no task writes them."""
        segments = self._segments.get((region.rank, region.buffer))
        if segments is None or region.nbytes == 0:
            return ()
        last: dict[tuple[int, str], int] = {}
        for _, _, step in segments.pieces(region.offset, region.end):
            if step != _NOBODY:
                task = self._tasks[self._task_of[step]]
                lane = (task.rank, task.lane)
                last[lane] = max(step, last.get(lane, _NOBODY))
        return tuple(self._dependency(step) for step in last.values())

    def _dependency(self, step: int) -> Dependency:
        position = self._task_of[step]
        whole = step + 1 == self._first[position + 1]
        return Dependency(task=self._tasks[position].id, part=None if whole else step - self._first[position])
