"""The copy engines of one GPU: commands wait for an engine, then move their bytes at its pace or slower."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from conccl.core.hardware import CopyEngines
from conccl.sim.engine import Engine
from conccl.sim.fabric import Way
from conccl.sim.flow import Flow, Network

READ_AHEAD = 10.0
"""Requests in flight over those needed: a host copy is no slower beside a kernel that fills HBM (H200)."""


class Command:
    """One copy: *queued* until an engine is free, then *moving*, then *done*."""

    __slots__ = ("done", "latency_ns", "nbytes", "order", "started", "way", "weight")

    def __init__(
        self,
        *,
        nbytes: int,
        way: Way,
        order: tuple[int, int],
        started: Callable[[], None],
        done: Callable[[], None],
        latency_ns: float,
        weight: float = 1.0,
    ) -> None:
        self.nbytes = nbytes
        self.way = way
        self.order = order
        """Priority, then place among all commands."""
        self.started = started
        self.done = done
        self.latency_ns = latency_ns
        """From taking the command to the first byte; the engine is held."""
        self.weight = weight


class CopyQueue:
    """Hands commands to the copy engines of one GPU."""

    def __init__(self, *, engine: Engine, network: Network, engines: CopyEngines) -> None:
        self._engine = engine
        self._network = network
        self._bandwidth = engines.bandwidth / 1e9
        self._free = engines.count
        self._waiting: list[tuple[tuple[int, int], int, Command]] = []
        self._sequence = count()
        network.before_settling(self._hand_out)

    def enqueue(self, command: Command, /) -> None:
        """Have it carried out as soon as an engine is free."""
        heapq.heappush(self._waiting, (command.order, next(self._sequence), command))
        self._network.request_settling()

    def _hand_out(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            self._start(heapq.heappop(self._waiting)[2])

    def _start(self, command: Command) -> None:
        command.started()
        cap = self._bandwidth / max(1, command.nbytes)
        flow = Flow(
            latency_ns=command.latency_ns,
            cap=cap,
            weight=cap * READ_AHEAD * command.weight,
            uses=[(resource, command.nbytes * share) for resource, share in command.way if command.nbytes],
            goal=1,
            ended=lambda flow: self._end(flow, command),
        )
        self._network.add(flow)

    def _end(self, flow: Flow, command: Command) -> None:
        self._network.remove(flow)
        self._free += 1
        command.done()
