"""The SMs of one GPU, handed out CTA by CTA as the hardware does it.

Pending CTAs go in order of priority, then of launch (or in turn, see `CtaDispatch`); nothing is pre-empted.
On SMs that stand idle CTAs are spread, one an SM, the emptiest first. SMs that a wave leaves come free one
after the other (CTAs never end at the very same moment), so whoever waits for them fills the first as far as
it fits: that is how a communication kernel gets packed onto a few SMs unless it asks for one each.

CTAs that behave alike are one cohort, and SMs in the same state one class, so that the cost of a kernel does
not grow with its CTAs.
"""

from __future__ import annotations

import bisect
import math
from collections import deque

from conccl.core.hardware import CtaDispatch, Device
from conccl.costs.kernel import Footprint
from conccl.sim.contention import Contention
from conccl.sim.engine import Engine
from conccl.sim.flow import Flow, Network
from conccl.sim.residents import Cohort, Launch, SmClass, allows
from conccl.sim.room import empty, fits, without
from conccl.sim.shares import Resource


class Sms:
    """Hands the SMs of one GPU to kernels."""

    def __init__(
        self,
        *,
        engine: Engine,
        network: Network,
        device: Device,
        partitions: dict[str, int],
        hbm: Resource,
        l2: Resource,
        speed: float = 1.0,
    ) -> None:
        self._engine = engine
        self._network = network
        self._device = device
        self._contention = Contention(network=network, device=device, hbm=hbm, l2=l2, speed=speed)
        self._alternates = device.cta_dispatch is CtaDispatch.ALTERNATING
        self._launches: dict[Launch, None] = {}
        self._leaving: dict[SmClass, list[Footprint]] = {}
        self._going_on: list[tuple[SmClass, Launch, int]] = []
        room = empty(device)
        rest = device.sm_count - sum(partitions.values())
        pools: list[tuple[str | None, int]] = [*partitions.items(), (None, rest)]
        self._classes = [
            SmClass(count=count, partition=name, room=room) for name, count in pools if count > 0
        ]
        network.before_settling(self._hand_out)

    def launch(self, launch: Launch, /) -> None:
        """Have the kernel's CTAs run as soon as SMs take them."""
        launch.pending_since_ns = self._engine.now_ns
        self._launches[launch] = None
        self._interrupt_those_behind(launch)
        self._network.request_settling()

    def open(self, launch: Launch, part: int, /) -> None:
        """Let the CTAs of a part begin, or go on."""
        launch.closed.discard(part)
        for cohort in list(launch.cohorts):
            if cohort.flow is None and cohort.part == part:
                self._begin(cohort)

    # Waves end

    def _interrupt_those_behind(self, launch: Launch) -> None:
        """Give SMs back at the end of the present wave where someone with precedence waits for them."""
        for other in self._launches:
            if other.persistent or other.has_workers or not self._precedes(launch, other):
                continue
            for cohort in other.cohorts:
                if cohort.flow is not None and allows(cohort.class_, launch):
                    self._cut(cohort, cohort.flow)

    def _cut(self, cohort: Cohort, flow: Flow) -> None:
        flow.advance(self._engine.now_ns)
        unstarted = flow.goal - flow.pieces_done - 1
        if unstarted > 0:
            flow.goal -= unstarted
            cohort.launch.queue.appendleft((unstarted * cohort.ctas, cohort.work, cohort.part))
            self._network.touch(flow)

    def _reached_goal(self, cohort: Cohort, flow: Flow) -> None:
        launch = cohort.launch
        launch.finished += (flow.pieces_done - cohort.reported) * cohort.ctas
        cohort.reported = flow.pieces_done
        if launch.persistent and flow.pieces_done < launch.pieces:
            self._continue(cohort, flow)
        elif launch.has_workers:
            self._go_on(cohort, flow)
        else:
            self._leave(cohort, flow)
        while launch.stops and launch.finished >= launch.stops[0]:
            launch.stops.popleft()
            launch.watcher.progressed()
        if not launch.queue and not launch.cohorts:
            del self._launches[launch]
            launch.watcher.ended()

    def _continue(self, cohort: Cohort, flow: Flow) -> None:
        """A persistent CTA goes on to its next part, or waits for it to open."""
        launch = cohort.launch
        cohort.part = bisect.bisect_right(launch.starts, flow.pieces_done * launch.kernel.ctas) - 1
        if cohort.part in launch.closed:
            self._network.remove(flow)
            cohort.flow = None
        else:
            flow.goal = self._persistent_goal(cohort)
            self._network.touch(flow)

    def _go_on(self, cohort: Cohort, flow: Flow) -> None:
        """Workers keep their SMs and take the next tiles when everyone is counted."""
        self._forget(cohort, flow)
        self._going_on.append((cohort.class_, cohort.launch, cohort.per_sm))

    def _leave(self, cohort: Cohort, flow: Flow) -> None:
        self._forget(cohort, flow)
        footprints = [cohort.launch.kernel.footprint] * cohort.per_sm
        self._leaving.setdefault(cohort.class_, []).extend(footprints)

    def _forget(self, cohort: Cohort, flow: Flow) -> None:
        self._network.remove(flow)
        del cohort.launch.cohorts[cohort]
        del cohort.class_.cohorts[cohort]

    # SMs are handed out

    def _hand_out(self) -> None:
        """Give every pending CTA that an SM takes to it: the end of an instant."""
        going_on, self._going_on = self._going_on, []
        for class_, launch, per_sm in going_on:
            self._take_tiles(class_, launch, per_sm=per_sm)
        self._release_parked()
        pending = self._pending()
        waiting = [launch for launch in pending if launch.pending_since_ns < self._engine.now_ns]
        if (
            self._alternates
        ):  # taking turns, a kernel of few CTAs has placed them all when one of many has begun
            waiting.sort(key=lambda one: (one.order[0], one.wanting))
        freed = bool(self._leaving)
        while self._leaving:
            class_ = next(iter(self._leaving))
            self._free(class_, leaving=self._leaving.pop(class_), pending=waiting)
        for launch in pending:
            self._spread(launch)
            if self._holds_up(launch):
                break
        if freed:
            self._spread_what_lies_ahead()
        if self._start_cohorts() or freed:
            self._contention.weigh(tuple(self._launches), self._classes)
        if freed:
            self._join_idle()

    def _take_tiles(self, class_: SmClass, launch: Launch, *, per_sm: int) -> None:
        """Workers take the tiles that are left for all, evenly over the SMs; the others are parked."""
        todo = deque([(class_, per_sm)])
        while todo:
            one, workers = todo.popleft()
            tiles = min(launch.queue[0][0], launch.for_all) if launch.queue else 0
            if tiles <= 0:
                one.parked.append((launch, workers))
                continue
            each, more = divmod(min(tiles, workers * one.count), one.count)
            if more:  # so many SMs have one more than the others
                todo.append((one, workers))
                one, each = self._split(one, more), each + 1
            work, part = launch.take(each * one.count)
            one.fresh[launch, work, part] = one.fresh.get((launch, work, part), 0) + each
            if each < workers:
                todo.append((one, workers - each))

    def _release_parked(self) -> None:
        """Workers leave together, when the last of their kernel's tiles under way is done."""
        busy = {launch for class_ in self._classes for launch, _, _ in class_.fresh}
        for class_ in self._classes:
            stay = [one for one in class_.parked if one[0].cohorts or one[0] in busy]
            for launch, per_sm in class_.parked:
                if not launch.cohorts and launch not in busy:
                    footprints = [launch.kernel.footprint] * per_sm
                    self._leaving.setdefault(class_, []).extend(footprints)
            class_.parked = stay

    def _pending(self) -> list[Launch]:
        return sorted((launch for launch in self._launches if launch.wanting), key=lambda one: one.order)

    def _free(self, class_: SmClass, *, leaving: list[Footprint], pending: list[Launch]) -> None:
        """Take a wave's CTAs off its SMs, one an SM at a time, and let the next ones in behind each."""
        classes = [class_]
        for footprint in leaving:
            for one in classes:  # a class that was split off holds the CTAs that are yet to leave, too
                one.room = without(one.room, footprint=footprint, ctas=-1)
            for next_ in pending:
                classes = [part for one in classes for part in self._fill(one, next_)]
                if self._holds_up(next_):
                    break

    def _holds_up(self, launch: Launch) -> bool:
        """Whether kernels behind it must wait: only the first kernel with CTAs pending is handed out."""
        if not launch.wanting or self._alternates:
            return False
        return launch.partition is None and self._sms_held(launch) < launch.sms

    def _fill(self, class_: SmClass, launch: Launch) -> list[SmClass]:
        """SM after SM as full as it gets; the classes that this one falls into."""
        done: list[SmClass] = []
        rest: SmClass | None = class_
        while rest is not None and launch.next_count:
            per_sm = self._fit(rest, launch)
            if per_sm == 0:
                break
            count = launch.next_count
            sms = min(max(1, count // per_sm), rest.count, self._sms_allowed(rest, launch))
            if sms < 1:
                break
            taken = rest if sms == rest.count else self._split(rest, sms)
            rest = None if taken is rest else rest
            self._place(taken, launch, per_sm=min(per_sm, count))
            done.append(taken)
        return done if rest is None else [*done, rest]

    def _spread(self, launch: Launch) -> None:
        """One CTA an SM at a time, the emptiest SMs first."""
        while launch.next_count:
            open_ = [class_ for class_ in self._classes if self._fit(class_, launch) > 0]
            open_ = [class_ for class_ in open_ if self._sms_allowed(class_, launch) > 0]
            if not open_:
                return
            class_ = min(open_, key=lambda one: -one.room[0])
            count = launch.next_count
            sms = min(count, class_.count, self._sms_allowed(class_, launch))
            taken = class_ if sms == class_.count else self._split(class_, sms)
            self._place(taken, launch, per_sm=1)

    def _return_what_lies_ahead(self, launch: Launch) -> None:
        """Workers that come late share the tiles that the early ones have set aside for their later waves."""
        for cohort in launch.cohorts:
            if cohort.flow is not None:
                self._cut(cohort, cohort.flow)

    def _spread_what_lies_ahead(self) -> None:
        """Give SMs that nobody pending takes to CTAs that a cohort has set aside for its later waves."""
        for launch in sorted(self._launches, key=lambda one: one.order):
            if (
                launch.persistent
                or launch.has_workers
                or not any(self._fit(class_, launch) for class_ in self._classes)
            ):
                continue
            for cohort in launch.cohorts:
                if cohort.flow is not None:
                    self._cut(cohort, cohort.flow)
            self._spread(launch)

    def _fit(self, class_: SmClass, launch: Launch) -> int:
        if not allows(class_, launch):
            return 0
        fit = fits(launch.kernel.footprint, room=class_.room)
        return min(fit, launch.ctas_per_sm - class_.held(launch)) if fit else 0

    def _sms_allowed(self, class_: SmClass, launch: Launch) -> int:
        """SMs of this class that the kernel's own limit lets it have."""
        if launch.sms == math.inf or class_.held(launch):
            return class_.count
        return max(0, int(launch.sms) - self._sms_held(launch))

    def _sms_held(self, launch: Launch) -> int:
        return sum(class_.count for class_ in self._classes if class_.held(launch))

    def _place(self, class_: SmClass, launch: Launch, *, per_sm: int) -> None:
        placed = per_sm * class_.count
        work, part = launch.take(placed)
        if launch.has_workers:
            launch.unstarted -= placed
            self._return_what_lies_ahead(launch)
        class_.room = without(class_.room, footprint=launch.kernel.footprint, ctas=per_sm)
        key = (launch, work, part)
        class_.fresh[key] = class_.fresh.get(key, 0) + per_sm

    def _split(self, class_: SmClass, sms: int) -> SmClass:
        """A class of its own for some of the SMs."""
        other = SmClass(count=sms, partition=class_.partition, room=class_.room)
        other.fresh = dict(class_.fresh)
        other.parked = list(class_.parked)
        share = sms / class_.count
        for cohort in class_.cohorts:
            self._split_cohort(cohort, into=other, share=share)
        class_.count -= sms
        class_.units.capacity = float(class_.count)
        self._classes.append(other)
        if class_ in self._leaving:
            self._leaving[other] = list(self._leaving[class_])
        return other

    def _split_cohort(self, cohort: Cohort, *, into: SmClass, share: float) -> None:
        other = Cohort(
            launch=cohort.launch, work=cohort.work, part=cohort.part, class_=into, per_sm=cohort.per_sm
        )
        other.reported = cohort.reported
        other.unhindered_ns, other.in_flight = cohort.unhindered_ns, cohort.in_flight
        into.cohorts[other] = None
        cohort.launch.cohorts[other] = None
        if cohort.flow is not None:
            cohort.flow.advance(self._engine.now_ns)
            other.flow = cohort.flow.parted(share=share, ended=lambda flow: self._reached_goal(other, flow))
            units = cohort.class_.units
            other.flow.uses = [(into.units if one is units else one, use) for one, use in other.flow.uses]
            self._network.touch(cohort.flow)
            self._network.add(other.flow)

    def _join_idle(self) -> None:
        """SMs on which nothing is resident are alike again."""
        idle: dict[str | None, SmClass] = {}
        kept = []
        for class_ in self._classes:
            if class_.cohorts or class_.parked:
                kept.append(class_)
            elif class_.partition in idle:
                idle[class_.partition].count += class_.count
                idle[class_.partition].units.capacity += class_.count
            else:
                idle[class_.partition] = class_
        self._classes = [*idle.values(), *kept]

    # Cohorts start

    def _start_cohorts(self) -> bool:
        """Whether any did."""
        started: list[Cohort] = []
        for class_ in self._classes:
            for (launch, work, part), per_sm in class_.fresh.items():
                cohort = Cohort(launch=launch, work=work, part=part, class_=class_, per_sm=per_sm)
                if not launch.cohorts and launch.finished == 0:
                    launch.watcher.started()
                launch.cohorts[cohort] = None
                class_.cohorts[cohort] = None
                started.append(cohort)
            class_.fresh = {}
        for cohort in started:
            if cohort.part not in cohort.launch.closed:
                self._begin(cohort)
        return bool(started)

    def _begin(self, cohort: Cohort) -> None:
        launch = cohort.launch
        cohort.flow = self._contention.flow(cohort, ended=lambda flow: self._reached_goal(cohort, flow))
        if launch.persistent:
            cohort.flow.pieces_done = cohort.reported
            cohort.flow.goal = self._persistent_goal(cohort)
        else:
            cohort.flow.goal = self._waves_ahead(cohort)
        self._network.add(cohort.flow)

    def _persistent_goal(self, cohort: Cohort) -> int:
        """Pieces after which the next part begins."""
        launch = cohort.launch
        stop = launch.starts[cohort.part + 1] if cohort.part + 1 < len(launch.starts) else math.inf
        return min(launch.pieces, max(cohort.reported + 1, math.ceil(stop / launch.kernel.ctas)))

    def _waves_ahead(self, cohort: Cohort) -> int:
        """Waves that the cohort may run before anyone must look, taken off the queue.

        Never the last CTAs: when they are handed out, those behind may come in.
        """
        launch = cohort.launch
        if not launch.queue or launch.queue[0][1:] != (cohort.work, cohort.part):
            return 1
        waiting = min(launch.queue[0][0], launch.for_all) if launch.has_workers else launch.queue[0][0] - 1
        if not launch.has_workers and any(self._is_waiting_before(one, cohort) for one in self._launches):
            return 1
        if len(launch.cohorts) > 1:  # the others draw from the queue too: half of one's share at a time
            together = sum(other.ctas for other in launch.cohorts)
            waiting = waiting * cohort.ctas // (2 * together)
        waves = waiting // cohort.ctas
        if len(launch.stops) > 1:
            missing = launch.stops[0] - launch.finished
            waves = min(waves, max(0, -(-missing // cohort.ctas) - 1))
        if waves:
            launch.take(waves * cohort.ctas)
        return 1 + waves

    def _is_waiting_before(self, other: Launch, cohort: Cohort) -> bool:
        return bool(other.queue) and self._precedes(other, cohort.launch) and allows(cohort.class_, other)

    def _precedes(self, one: Launch, other: Launch) -> bool:
        """Whether the one's CTAs may have SMs that the other's leave."""
        if self._alternates:
            return one is not other and one.order[0] <= other.order[0]
        return one.order < other.order
