"""A task on its way through a simulation, and collectives that wait for all their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, count

from conccl.core.plan import Task
from conccl.sim.copying import Command, CopyQueue
from conccl.sim.engine import Action, Engine
from conccl.sim.residents import Launch
from conccl.sim.sms import Sms
from conccl.sim.work import CommandStage, KernelStage, Stage, WaitStage


class Place:
    """What carries out one rank's tasks."""

    def __init__(self, *, engine: Engine, sms: Sms, copies: CopyQueue, launch_ns: int) -> None:
        self.engine = engine
        self.sms = sms
        self.copies = copies
        self.launch_ns = launch_ns
        """From the end of what a kernel waits for to its start."""
        self.arrivals = count()
        """Kernels and commands are numbered as they arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Follower:
    run: TaskRun
    needed_by: int
    latency_ns: int


class TaskRun:
    """A task: *waiting* for others, *running* stage after stage, then *complete*."""

    def __init__(self, task: Task, /, *, stages: Sequence[Stage], place: Place, weight: float) -> None:
        self.task = task
        self._stages = tuple(stages) or (WaitStage(wait_ns=0),)
        self._stage = -1
        self._place = place
        self._weight = weight
        sizes = [part.stop - part.start for part in task.parts]
        self._shares = _shares(sizes)
        self._unmet = [0] * len(self._shares)
        """How much each part still waits for; the first: the task."""
        self._closed: set[int] = set()
        """Parts that may not begin yet although the task runs."""
        self._followers: list[list[_Follower]] = [[] for _ in self._shares]
        self._follows = False
        self._parts_done = 0
        self._launch: Launch | None = None
        self._halted_at: int | None = None
        """The part before which the copy engines' commands wait."""
        self._commands_left = 0
        self._rendezvous: Rendezvous | None = None
        self._started_ns: int | None = None
        self._ended_ns: int | None = None

    @property
    def has_ended(self) -> bool:
        """Whether all of it is done."""
        return self._ended_ns is not None

    def times(self) -> tuple[int, int]:
        """Start and end."""
        assert self._started_ns is not None, self.task.id
        assert self._ended_ns is not None, self.task.id
        return self._started_ns, self._ended_ns

    # Who waits for whom

    def lets_go(
        self, other: TaskRun, /, *, part: int | None = None, needed_by: int = 0, latency_ns: int = 0
    ) -> None:
        """Have a part of the other task wait for a part of this one, or for all of it."""
        awaited = len(self._followers) - 1 if part is None else part
        self._followers[awaited].append(_Follower(run=other, needed_by=needed_by, latency_ns=latency_ns))
        other.awaits(needed_by)

    def awaits(self, part: int, /) -> None:
        """Let a part wait for one thing more."""
        self._unmet[part] += 1
        self._follows = True
        if part > 0:
            self._closed.add(part)

    def meet_at(self, rendezvous: Rendezvous, /) -> None:
        """Do nothing until the tasks of all ranks are there, and end with them."""
        self._rendezvous = rendezvous
        self._closed.add(0)

    def issue(self, *, at_ns: int) -> None:
        """Reach the GPU then."""
        self._unmet[0] += 1
        self._place.engine.schedule(lambda: self.met(0), at_ns=at_ns)

    def met(self, part: int, /) -> None:
        """One of the things that a part waits for is there."""
        self._unmet[part] -= 1
        if self._unmet[part] == 0:
            if part == 0:
                gap_ns = self._place.launch_ns if self._follows and self._uses_sms() else 0
                self._after(gap_ns, self._next_stage)
            else:
                self.open(part)

    def open(self, part: int, /) -> None:
        """Let a part begin."""
        self._closed.discard(part)
        if self._launch is not None:
            self._place.sms.open(self._launch, part)
        elif self._halted_at == part:
            self._halted_at = None
            self._command(part)

    # Stages

    def _uses_sms(self) -> bool:
        return isinstance(self._stages[0], KernelStage)

    def _next_stage(self) -> None:
        self._stage += 1
        if self._stage == len(self._stages):
            self._finish()
            return
        match self._stages[self._stage]:
            case KernelStage() as kernel:
                gap_ns = self._place.launch_ns if self._stage > 0 else 0
                self._after(gap_ns, lambda: self._launch_kernel(kernel))
            case CommandStage():
                self._command(self._parts_done)
            case WaitStage() as wait:
                self.started()
                self._after(wait.wait_ns, self._next_stage)

    def _launch_kernel(self, stage: KernelStage) -> None:
        last = self._stage == len(self._stages) - 1
        task = self.task
        self._launch = Launch(
            kernel=stage.kernel,
            watcher=self,
            order=self._order(),
            links=stage.way,
            sms=task.sms,
            ctas_per_sm=task.ctas_per_sm,
            partition=task.partition,
            weight=self._weight,
            parts=tuple(accumulate(self._shares)) if last else (1.0,),
            closed=self._closed if last else (),
            pace_ns=stage.pace_ns,
        )
        self._place.sms.launch(self._launch)

    def _command(self, part: int) -> None:
        """Hand a part's copies to the engines, or wait until it may begin."""
        stage = self._stages[self._stage]
        assert isinstance(stage, CommandStage)
        if part in self._closed:
            self._halted_at = part
            if part == 0 and self._rendezvous is not None:
                self._rendezvous.arrived()
            return
        self._commands_left = len(stage.ways)
        for way in stage.ways:
            command = Command(
                nbytes=round(stage.nbytes * self._shares[part]),
                way=way,
                order=self._order(),
                started=self.started,
                done=self._command_done,
                latency_ns=stage.latency_ns,
                weight=self._weight,
            )
            self._place.copies.enqueue(command)

    def _order(self) -> tuple[int, int]:
        return (self.task.priority, next(self._place.arrivals))

    # What kernels and commands report

    def started(self) -> None:
        """The first CTA is resident, or an engine has taken the first command."""
        if self._started_ns is None:
            self._started_ns = self._place.engine.now_ns
            if self._launch is not None and self._rendezvous is not None:
                self._rendezvous.arrived()

    def progressed(self) -> None:
        """A part of the kernel's output is complete; the last one is with the task."""
        if self._stage == len(self._stages) - 1 and self._parts_done < len(self._shares) - 1:
            self._part_done()

    def ended(self) -> None:
        """All CTAs of a kernel have ended."""
        stage = self._stages[self._stage]
        assert isinstance(stage, KernelStage)
        self._launch = None
        self._after(round(stage.kernel.fixed_ns), self._next_stage)

    def _command_done(self) -> None:
        self._commands_left -= 1
        if self._commands_left == 0:
            if self._parts_done < len(self._shares) - 1:
                self._part_done()
                self._command(self._parts_done)
            else:
                self._next_stage()

    def _part_done(self) -> None:
        followers = self._followers[self._parts_done]
        self._parts_done += 1
        for follower in followers:
            self._tell(follower)

    def _finish(self) -> None:
        if self._rendezvous is None:
            self.complete()
        else:
            self._rendezvous.finished()

    def complete(self) -> None:
        """Let everything go on that waits for this task."""
        self._ended_ns = self._place.engine.now_ns
        while self._parts_done < len(self._shares):
            self._part_done()

    def _tell(self, follower: _Follower) -> None:
        self._after(follower.latency_ns, lambda: follower.run.met(follower.needed_by))

    def _after(self, wait_ns: int, action: Action) -> None:
        if wait_ns:
            self._place.engine.schedule(action, at_ns=self._place.engine.now_ns + wait_ns)
        else:
            action()


class Rendezvous:
    """One collective call: its ranks' kernels hold their SMs until the last is there, and end together."""

    def __init__(self, members: Sequence[TaskRun], /) -> None:
        self._members = members
        self._missing = len(members)
        self._running = len(members)
        for member in members:
            member.meet_at(self)

    def arrived(self) -> None:
        """One rank more is there."""
        self._missing -= 1
        if self._missing == 0:
            for member in self._members:
                member.open(0)

    def finished(self) -> None:
        """One rank more has done its share."""
        self._running -= 1
        if self._running == 0:
            for member in self._members:
                member.complete()


def _shares(sizes: Sequence[int]) -> list[float]:
    """Each part's share of the output; equal where nothing is written."""
    if not sizes:
        return [1.0]
    whole = sum(sizes)
    return [size / whole if whole else 1 / len(sizes) for size in sizes]
