"""Work in progress: flows that advance at rates which change, and the network that rates them.

A flow is some equal members (the CTAs of a wave, or one copy) that go through pieces of work side by side. A
piece is a latency, in which time merely passes, and a body of one unit of progress. A flow is *idle* before
it is added, *running* until its goal, and reports when it has done the pieces that its owner asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from conccl.sim.engine import SETTLE, Engine, Event
from conccl.sim.shares import Resource, fair_rates

Ended = Callable[["Flow"], None]

ROUNDING_NS = 1e-6
"""An end that lies this little after a whole nanosecond is that nanosecond."""


class Flow:
    """Equal members side by side in pieces of work."""

    __slots__ = (
        "_body_left",
        "_latency_left_ns",
        "_since_ns",
        "cap",
        "ended",
        "event",
        "goal",
        "latency_ns",
        "pieces_done",
        "rate",
        "uses",
        "weight",
    )

    def __init__(
        self,
        *,
        latency_ns: float,
        cap: float,
        weight: float,
        uses: list[tuple[Resource, float]],
        goal: int,
        ended: Ended,
    ) -> None:
        self.latency_ns = latency_ns
        self.cap = cap
        """Bodies per nanosecond with nothing short."""
        self.weight = weight
        self.uses = uses
        """What the bodies of all members take of each resource."""
        self.goal = goal
        """Pieces after which ``ended`` is called."""
        self.ended = ended
        self.pieces_done = 0
        self.rate = 0.0
        self.event: Event | None = None
        self._latency_left_ns = latency_ns
        self._body_left = 1.0
        self._since_ns = 0

    def begin(self, now_ns: int) -> None:
        """Count progress from now on."""
        self._since_ns = now_ns

    def advance(self, now_ns: int) -> None:
        """Count the time since the last look as progress at the present rate."""
        elapsed = float(now_ns - self._since_ns)
        self._since_ns = now_ns
        while elapsed > 0 and self.pieces_done < self.goal:
            if self._latency_left_ns > 0:
                passed = min(elapsed, self._latency_left_ns)
                self._latency_left_ns -= passed
                elapsed -= passed
                continue
            if self.rate <= 0:
                return
            need = self._body_left / self.rate
            if elapsed < need - ROUNDING_NS:
                self._body_left -= elapsed * self.rate
                return
            elapsed -= need
            self._next_piece()
            elapsed = self._skip_whole_pieces(elapsed)

    def _next_piece(self) -> None:
        self.pieces_done += 1
        self._latency_left_ns = self.latency_ns
        self._body_left = 1.0

    def _skip_whole_pieces(self, elapsed: float) -> float:
        piece_ns = self.latency_ns + 1.0 / self.rate
        if piece_ns <= 0:
            self.pieces_done = self.goal
            return 0.0
        whole = min(int((elapsed + ROUNDING_NS) / piece_ns), self.goal - self.pieces_done)
        self.pieces_done += max(0, whole)
        return elapsed - max(0, whole) * piece_ns

    def left_ns(self) -> float:
        """Time to the goal at the present rate, from the last look on."""
        if self.pieces_done >= self.goal:
            return 0.0
        if self.rate <= 0:
            return math.inf
        later = (self.goal - self.pieces_done - 1) * (self.latency_ns + 1.0 / self.rate)
        return self._latency_left_ns + self._body_left / self.rate + later

    def parted(self, *, share: float, ended: Ended) -> Flow:
        """A flow with this share of the members, at the same point; what is left here has the rest."""
        other = Flow(
            latency_ns=self.latency_ns,
            cap=self.cap,
            weight=self.weight,
            uses=[(resource, amount * share) for resource, amount in self.uses],
            goal=self.goal,
            ended=ended,
        )
        other.pieces_done = self.pieces_done
        other.rate = self.rate
        other._latency_left_ns = self._latency_left_ns
        other._body_left = self._body_left
        other._since_ns = self._since_ns
        self.uses = [(resource, amount * (1 - share)) for resource, amount in self.uses]
        return other


class Network:
    """The running flows; works out all rates again, once, at the end of every instant that changed them."""

    def __init__(self, *, engine: Engine) -> None:
        self._engine = engine
        self._flows: dict[Flow, None] = {}
        self._users: dict[Resource, dict[Flow, None]] = {}
        self._touched: dict[Flow, None] = {}
        self._freed: dict[Resource, None] = {}
        self._settling = False
        self._before_settling: list[Callable[[], None]] = []

    def before_settling(self, action: Callable[[], None], /) -> None:
        """Do this at the end of every instant of change, before rates are worked out."""
        self._before_settling.append(action)

    def add(self, flow: Flow, /) -> None:
        """Start the flow now."""
        flow.begin(self._engine.now_ns)
        self._flows[flow] = None
        for resource, _ in flow.uses:
            self._users.setdefault(resource, {})[flow] = None
        self.touch(flow)

    def remove(self, flow: Flow, /) -> None:
        """Take the flow out; what it used is free for others."""
        if flow.event is not None:
            flow.event.cancel()
            flow.event = None
        self._flows.pop(flow, None)
        self._touched.pop(flow, None)
        for resource, _ in flow.uses:
            self._users[resource].pop(flow, None)
            self._freed[resource] = None
        self.request_settling()

    def touch(self, flow: Flow, /) -> None:
        """Say that the flow's goal, cap or uses are about to change or have just changed."""
        self._touched[flow] = None
        self.request_settling()

    def change_capacity(self, resource: Resource, capacity: float, /) -> None:
        """Let the resource do more or less from now on."""
        if resource.capacity != capacity:
            resource.capacity = capacity
            self._freed[resource] = None
            self.request_settling()

    def request_settling(self) -> None:
        """Have everything settled at the end of this instant."""
        if not self._settling:
            self._settling = True
            self._engine.schedule(self._settle, at_ns=self._engine.now_ns, priority=SETTLE)

    def _settle(self) -> None:
        for action in self._before_settling:
            action()
        self._settling = False
        now = self._engine.now_ns
        concerned = self._concerned()
        touched, self._touched, self._freed = self._touched, {}, {}
        for flow in concerned:
            flow.advance(now)
        for flow, rate in zip(concerned, fair_rates(concerned), strict=True):
            if rate != flow.rate or flow in touched or flow.event is None:
                flow.rate = rate
                self._reschedule(flow)

    def _concerned(self) -> list[Flow]:
        """Flows that are joined to a change by resources that they use."""
        found = dict(self._touched)
        resources = dict(self._freed)
        queue: list[Resource] = list(resources)
        queue.extend(_new(resources, (r for flow in found for r, _ in flow.uses)))
        while queue:
            for flow in self._users.get(queue.pop(), ()):
                if flow not in found:
                    found[flow] = None
                    queue.extend(_new(resources, (resource for resource, _ in flow.uses)))
        return [flow for flow in found if flow in self._flows]

    def _reschedule(self, flow: Flow) -> None:
        if flow.event is not None:
            flow.event.cancel()
            flow.event = None
        left_ns = flow.left_ns()
        if left_ns < math.inf:
            at_ns = self._engine.now_ns + max(0, math.ceil(left_ns - ROUNDING_NS))
            flow.event = self._engine.schedule(lambda: self._end(flow), at_ns=at_ns)

    def _end(self, flow: Flow) -> None:
        flow.event = None
        flow.advance(self._engine.now_ns)
        flow.pieces_done = max(flow.pieces_done, flow.goal)
        flow.ended(flow)


def _new(known: dict[Resource, None], candidates: Iterable[Resource]) -> list[Resource]:
    fresh = []
    for resource in candidates:
        if resource not in known:
            known[resource] = None
            fresh.append(resource)
    return fresh
