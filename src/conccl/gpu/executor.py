"""The GPU executor: a plan goes into streams, a timeline comes back from events."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from conccl.core.plan import Plan, Side
from conccl.core.timeline import Activity, Clock, Lane, Span, Timeline, timeline_of
from conccl.gpu.driver import Driver, Evidence, Handle
from conccl.gpu.program import Launch, Program, program_of

PATIENCE_S = 20.0
"""What one run may take before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a plan."""

    timeline: Timeline
    evidence: Evidence
    wrong: str
    """What is wrong with the results; empty where they are right."""


class GpuExecutor:
    """Runs plans on a driver; ``ranks`` None: all of a plan's, as virtual ranks of this process.

    Everything is enqueued while the streams are held back, so that what the host takes to launch does not
    show in the times.
    """

    def __init__(
        self,
        *,
        driver: Driver,
        device: str = "gpu",
        ranks: Collection[int] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._driver = driver
        self._device = device
        self._ranks = ranks
        self._patience_s = patience_s

    def run(self, plan: Plan, /) -> Timeline:
        """Carry out the plan once; one row a task, named by its id."""
        return self.prepared(plan).run().timeline

    def prepared(self, plan: Plan, /) -> Prepared:
        """The plan with all that it needs in place: to be run as often as one likes."""
        program = program_of(plan, ranks=self._ranks)
        self._driver.prepare(program)
        return Prepared(
            driver=self._driver, program=program, device=self._device, patience_s=self._patience_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A plan that is ready to run."""

    driver: Driver
    program: Program
    device: str
    patience_s: float

    def run(self, *, check: bool = True) -> Run:
        """Once; raises `WaitTimeoutError` where it does not end. ``check``: whether results are looked at."""
        driver = self.driver
        origin = driver.begin()
        happened: dict[int, Handle] = {}
        begins: dict[str, Handle] = {}
        ends: dict[str, Handle] = {}
        for launch in self.program.launches:
            self._issue(launch, happened, begins, ends)
        driver.release()
        driver.finish(seconds=self.patience_s)
        spans = [
            self._span(launch, origin, begins, ends) for launch in self.program.launches if launch.is_first
        ]
        return Run(
            timeline=_from_zero(spans), evidence=driver.evidence(), wrong=driver.wrong() if check else ""
        )

    def _issue(
        self,
        launch: Launch,
        happened: dict[int, Handle],
        begins: dict[str, Handle],
        ends: dict[str, Handle],
    ) -> None:
        driver = self.driver
        for step in launch.waits:
            driver.wait(launch.stream, happened[step])
        if launch.is_first:
            begins[launch.task.id] = driver.event()
            driver.record(begins[launch.task.id], launch.stream)
        driver.launch(launch)
        if launch.is_awaited or launch.is_last:
            event = driver.event()
            driver.record(event, launch.stream)
            happened[launch.step] = event
            if launch.is_last:
                ends[launch.task.id] = event

    def _span(
        self, launch: Launch, origin: Handle, begins: dict[str, Handle], ends: dict[str, Handle]
    ) -> Span:
        task = launch.task
        start_ns = self.driver.elapsed_ns(origin, begins[task.id])
        end_ns = self.driver.elapsed_ns(origin, ends[task.id])
        return Span(
            name=task.id,
            lane=Lane(rank=task.rank, device=self.device, stream=task.lane),
            activity=Activity.COMPUTE if task.side is Side.COMPUTE else Activity.COMMUNICATION,
            start_ns=start_ns,
            end_ns=max(start_ns, end_ns),
        )


def _from_zero(spans: Sequence[Span]) -> Timeline:
    """Rows in time from the first one's start: what passed while streams were held back is nobody's."""
    first = min((span.start_ns for span in spans), default=0)
    moved = (
        Span(
            name=span.name,
            lane=span.lane,
            activity=span.activity,
            start_ns=span.start_ns - first,
            end_ns=span.end_ns - first,
        )
        for span in spans
    )
    return timeline_of(moved, clock=Clock.GPU)
