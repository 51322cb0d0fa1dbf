"""Kernels on their way through a GPU, SMs in the same state, and the CTAs that are resident on them."""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from conccl.costs.kernel import CtaWork, KernelCost
from conccl.sim.fabric import Way
from conccl.sim.flow import Flow
from conccl.sim.room import Room
from conccl.sim.shares import Resource

FINE_PIECES = 64
"""Steps of a persistent CTA's work that are told apart: its parts complete to within one of them."""


class Watcher(Protocol):
    """Who launched a kernel and wants to hear of it."""

    def started(self) -> None:
        """The first CTA is resident."""
        ...

    def progressed(self) -> None:
        """The next of its parts is complete."""
        ...

    def ended(self) -> None:
        """All of its CTAs have ended."""
        ...


class Launch:
    """One kernel on its way through a GPU: *pending*, *running* once a CTA is resident, *ended*.

    Its output has parts; a part's CTAs are the next in launch order, or, where each CTA is resident until the
    end (a persistent kernel), every CTA's next pieces. CTAs that reach a part which is not open yet keep
    their SM and wait.
    """

    __slots__ = (
        "closed",
        "cohorts",
        "ctas_per_sm",
        "finished",
        "hbm",
        "hbm_factor",
        "kernel",
        "links",
        "order",
        "pace_ns",
        "partition",
        "pending_since_ns",
        "pieces",
        "queue",
        "sms",
        "starts",
        "stops",
        "unstarted",
        "watcher",
        "weight",
    )

    def __init__(
        self,
        *,
        kernel: KernelCost,
        watcher: Watcher,
        order: tuple[int, int],
        links: Way = (),
        sms: int | None = None,
        ctas_per_sm: int | None = None,
        partition: str | None = None,
        weight: float = 1.0,
        parts: Sequence[float] = (1.0,),
        closed: Iterable[int] = (),
        pace_ns: float | None = None,
    ) -> None:
        self.kernel = kernel
        self.watcher = watcher
        self.order = order
        """Priority, then place among all launches: who comes first where both have CTAs pending."""
        self.links = links
        """What a byte of link traffic uses."""
        self.sms = math.inf if sms is None else sms
        self.ctas_per_sm = min(kernel.ctas_per_sm, ctas_per_sm or kernel.ctas_per_sm)
        self.partition = partition
        self.weight = weight
        self.closed = set(closed)
        """Parts that may not begin yet."""
        self.pace_ns = pace_ns
        """Of kernels that move bytes: the time of a CTA's share by itself."""
        persistent = pace_ns is not None
        self.pieces = FINE_PIECES if persistent and len(parts) > 1 else 1
        """Steps in which a CTA's work is counted."""
        whole = kernel.ctas * self.pieces
        self.stops = deque(math.ceil(part * whole - 1e-9) for part in parts)
        """Pieces that have ended when each part that is not complete yet is complete."""
        self.starts = (0, *self.stops)
        self.queue = _queue(kernel, starts=self.starts if self.closed and not persistent else (0,))
        """CTAs (or tiles) that no SM has taken yet, in launch order, each with its part."""
        limit = kernel.ctas if sms is None else sms * self.ctas_per_sm
        self.unstarted = min(kernel.workers, kernel.ctas, limit)
        """Workers that are not resident yet; each of the queue's first tiles is for one of them."""
        self.cohorts: dict[Cohort, None] = {}
        self.finished = 0
        """Pieces that have ended."""
        self.pending_since_ns = 0
        self.hbm = Resource(name="the kernel's way to HBM", capacity=math.inf)
        """What its accesses reach of HBM bandwidth, where that is not all."""
        self.hbm_factor = 1.0
        """HBM traffic over what it is alone: above 1 where others' traffic takes its share of L2."""

    @property
    def persistent(self) -> bool:
        """Whether its CTAs stay until the end."""
        return self.pieces > 1

    @property
    def has_workers(self) -> bool:
        """Whether its CTAs go from tile to tile."""
        return self.kernel.workers > 0

    @property
    def wanting(self) -> int:
        """CTAs that wait for an SM."""
        return self.unstarted if self.has_workers else sum(count for count, _, _ in self.queue)

    @property
    def next_count(self) -> int:
        """CTAs that can be placed now and ask for the same."""
        if not self.queue:
            return 0
        return min(self.queue[0][0], self.unstarted) if self.has_workers else self.queue[0][0]

    @property
    def for_all(self) -> int:
        """Tiles that any worker may take."""
        return sum(count for count, _, _ in self.queue) - self.unstarted

    def take(self, count: int, /) -> tuple[CtaWork, int]:
        """Take so many of the first kind off the queue: what they ask for, and their part."""
        waiting, work, part = self.queue.popleft()
        if waiting > count:
            self.queue.appendleft((waiting - count, work, part))
        return work, part


def _queue(kernel: KernelCost, *, starts: Sequence[int]) -> deque[tuple[int, CtaWork, int]]:
    """The CTAs in launch order, cut where their work or their part changes."""
    queue: deque[tuple[int, CtaWork, int]] = deque()
    at = 0
    for group in kernel.groups:
        end = at + group.count
        while at < end:
            part = bisect.bisect_right(starts, at) - 1
            stop = min(end, starts[part + 1]) if part + 1 < len(starts) else end
            queue.append((stop - at, group.work, part))
            at = stop
    return queue


class SmClass:
    """SMs in the same state: the same CTAs resident, at the same point."""

    __slots__ = ("cohorts", "count", "fresh", "parked", "partition", "room", "units")

    def __init__(self, *, count: int, partition: str | None, room: Room) -> None:
        self.count = count
        self.partition = partition
        self.room = room
        self.cohorts: dict[Cohort, None] = {}
        self.fresh: dict[tuple[Launch, CtaWork, int], int] = {}
        """CTAs an SM that this instant's hand-out has put here."""
        self.parked: list[tuple[Launch, int]] = []
        """Workers without a tile: they stay until the others of their kernel are through."""
        self.units = Resource(name="sm", capacity=float(count))

    def held(self, launch: Launch, /) -> int:
        """CTAs of this kernel on each of the SMs."""
        fresh = sum(ctas for (who, _, _), ctas in self.fresh.items() if who is launch)
        return fresh + sum(cohort.per_sm for cohort in self.cohorts if cohort.launch is launch)


class Cohort:
    """CTAs of one kernel that ask for the same, on SMs of one class, at the same point."""

    __slots__ = (
        "class_",
        "flow",
        "in_flight",
        "launch",
        "part",
        "per_sm",
        "reported",
        "unhindered_ns",
        "work",
    )

    def __init__(self, *, launch: Launch, work: CtaWork, part: int, class_: SmClass, per_sm: int) -> None:
        self.launch = launch
        self.work = work
        self.part = part
        self.class_ = class_
        self.per_sm = per_sm
        self.reported = 0
        """Pieces that the kernel's count has heard of."""
        self.unhindered_ns = 0.0
        """A body's time with nobody else there."""
        self.in_flight = 0.0
        """Bodies a nanosecond that its requests in flight are good for."""
        self.flow: Flow | None = None
        """None while it has not begun, and while it waits for a part to open."""

    @property
    def ctas(self) -> int:
        """CTAs side by side."""
        return self.class_.count * self.per_sm


def allows(class_: SmClass, launch: Launch, /) -> bool:
    """Whether a kernel may run on these SMs."""
    return launch.partition is None or launch.partition == class_.partition
