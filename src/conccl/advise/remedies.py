"""What each strategy would bring for the overlaps that cost most, by simulating their pair of kernels.

Rules. The pair is the compute and the communication kernel that run longest in the overlap. Where both ran
together, a row of the compute kernel is simulated beside communication that lasts as long. While both run,
each gets a share of its isolated work done: its rate. To get the communication done that the trace did takes
its isolated time over its rate, in all of which the compute loses what its rate lacks; what finds no compute
to run beside is exposed. What is lost less than in the trace is the gain. (The other way round where the
overlap costs the communication.) Where communication was exposed, the gain is what the two kernels take less
beside each other than one after the other. A gain is never more than what the overlap costs; one that is not
larger than its uncertainty is no advice, and neither is anything slower than one after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conccl.advise.advised import Remedy, SimulatedStrategy
from conccl.advise.costs import cover_ns
from conccl.advise.devices import recognised
from conccl.advise.overlaps import Kernel, RecordedOverlap
from conccl.advise.recorded import collective_op, compute_ops, copy_op
from conccl.advise.simulated import Outcome, Row, simulate
from conccl.core.errors import ConcclError
from conccl.core.hardware import Device
from conccl.core.kinds import Memory
from conccl.core.movement import Collective, Copy
from conccl.core.ops import Compute
from conccl.core.pair import Dependence, Pair
from conccl.strategies.heuristics import alone_ns
from conccl.traces.findings import OverlapCost, OverlappedRegion
from conccl.workloads.pairs import op_text

MOST = 3
"""Overlaps that are simulated: those that cost most."""

INDEPENDENT = ("prioritized", "ce", "partitioned", "prioritized_partitioned", "ce_trimmed")
"""What can be done where neither side needs the other, the simplest first."""

DEPENDENT = ("chunked", "fused")
"""What can be done where computation produces what is sent."""

BY_ENGINES = ("ce", "ce_trimmed")
"""What can be done with copies that engines move anyway: there are no SMs to share out."""

LEAST_KERNELS, MOST_KERNELS = 4, 32
"""Compute kernels in a row that are simulated: enough that what comes between two of them shows, and no more
than is quick. The communication is made to last as long."""

PAGE = 4096

EQUAL = 0.01
"""Gains that differ by less than this share of the cost are equal: the simplest strategy is named."""


def remedies(
    costs: Sequence[OverlapCost],
    overlaps: Mapping[int, Sequence[RecordedOverlap]],
    /,
    *,
    device: str | None,
) -> tuple[Remedy, ...]:
    """For the costliest of ``costs`` whose kernels are recorded; ``overlaps`` are those of each rank."""
    found = []
    for place, cost in enumerate(costs[:MOST]):
        key = (cost.kind, cost.communication, cost.compute)
        recorded = next((each for each in overlaps.get(cost.worst.rank, ()) if each.key == key), None)
        remedy = None if recorded is None else _remedy(recorded, cost, place=place, device=device)
        if remedy is not None:
            found.append(remedy)
    return tuple(found)


def _remedy(
    recorded: RecordedOverlap, cost: OverlapCost, /, *, place: int, device: str | None
) -> Remedy | None:
    """None where the device, or what the kernels do, is not known."""
    on = recognised(recorded.device_name, sm_count=recorded.sm_count, given=device).device
    operator = recorded.compute.operator
    if on is None or operator is None:
        return None
    computations = compute_ops(operator, recorded.compute.name)
    moved, assumption = _communication(recorded, on)
    if not computations or moved is None:
        return None
    names = _strategies(recorded, moved, on)
    try:
        row = _row(recorded, computations[-1], moved, on)
        outcomes = simulate(row, names, device=on)
    except ConcclError:  # such as an element type that the device does not multiply
        return None
    if not outcomes:
        return None
    return _Judgement(
        recorded=recorded,
        cost=cost,
        device=on,
        assumption=assumption,
        row=row,
        outcomes=outcomes,
        as_it_ran=names[0] if recorded.kind == "contention" else "",
    ).remedy(place)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    """An overlap, the row of kernels that stands for it, and what the simulator says of that."""

    recorded: RecordedOverlap
    cost: OverlapCost
    device: Device
    assumption: str
    row: Row
    outcomes: Mapping[str, Outcome]
    as_it_ran: str
    """The strategy that is taken to have run; empty where the two did not run together."""

    def remedy(self, place: int, /) -> Remedy:
        strategies = [self._strategy(name, outcome) for name, outcome in self.outcomes.items()]
        best = self._best(strategies)
        worst = self.cost.worst
        kernels = f"{self.row.kernels} x " if self.row.kernels > 1 else ""
        pair = self.row.pair
        return Remedy(
            place=place,
            kind=self.recorded.kind,
            communication=self.recorded.communication.name,
            compute=self.recorded.compute.name,
            rank=worst.rank,
            cost_ns=self._limit_ns,
            device=self.device.name,
            pair=f"{kernels}{op_text(pair.compute)} beside {op_text(pair.communication)}",
            assumption=self.assumption,
            measured_fraction=worst.fraction_of_ideal if isinstance(worst, OverlappedRegion) else None,
            strategies=tuple(sorted(strategies, key=lambda each: -each.gain_ns)),
            best=None if best is None else best.name,
            gain_ns=0 if best is None else best.gain_ns,
            uncertainty_ns=0 if best is None else best.uncertainty_ns,
        )

    def _strategy(self, name: str, outcome: Outcome, /) -> SimulatedStrategy:
        worst = self.cost.worst
        if isinstance(worst, OverlappedRegion):
            saved_ns, doubt_ns = _saved_together(worst, outcome, fill=self.recorded.fill)
        else:
            compute = self.recorded.compute
            serial_ns = worst.exposed_ns + worst.calls * (compute.alone_ns or compute.duration_ns)
            takes_ns = serial_ns / (outcome.overlap.speedup or 1.0)
            saved_ns, doubt_ns = serial_ns - takes_ns, outcome.uncertainty * takes_ns
        return SimulatedStrategy(
            name=name,
            speedup=outcome.overlap.speedup or 0.0,
            fraction_of_ideal=outcome.overlap.fraction_of_ideal,
            gain_ns=min(self._limit_ns, round(saved_ns)),
            uncertainty_ns=round(doubt_ns),
        )

    @property
    def _limit_ns(self) -> int:
        """What the overlap costs the rank."""
        worst = self.cost.worst
        return (worst.cost_ns or 0) if isinstance(worst, OverlappedRegion) else cover_ns(worst)

    def _best(self, strategies: Sequence[SimulatedStrategy], /) -> SimulatedStrategy | None:
        sure = [
            each
            for each in strategies
            if each.name != self.as_it_ran and each.gain_ns > each.uncertainty_ns and each.speedup > 1
        ]
        if not sure:
            return None
        most = max(each.gain_ns for each in sure)
        return next(each for each in sure if each.gain_ns >= most - EQUAL * self._limit_ns)


def _strategies(recorded: RecordedOverlap, moved: Collective | Copy, device: Device, /) -> tuple[str, ...]:
    """What the system has, and first what ran, where both ran together."""
    within = not isinstance(moved, Collective) or moved.ranks <= device.gpus_per_node
    engines = within and device.copy_engines.count > 0
    if recorded.kind == "exposed_after":
        return DEPENDENT if engines else ()
    if recorded.communication.nbytes:
        return BY_ENGINES if engines else ()
    independent = tuple(name for name in INDEPENDENT if engines or not name.startswith("ce"))
    return ("baseline", *independent) if recorded.kind == "contention" else independent


def _communication(recorded: RecordedOverlap, device: Device, /) -> tuple[Collective | Copy | None, str]:
    """What was moved, and what had to be assumed for it."""
    kernel = recorded.communication
    if kernel.nbytes:
        return copy_op(kernel.name, kernel.nbytes), ""
    if kernel.call is not None:
        return collective_op(kernel.call, world_size=recorded.world_size), ""
    return _host_copy(kernel, device)


def _host_copy(kernel: Kernel, device: Device, /) -> tuple[Copy | None, str]:
    """A kernel that says by its name that it copies over the host link, sized by what it takes alone."""
    if "host_copy" not in kernel.name or kernel.alone_ns is None:
        return None, ""
    nbytes = round(kernel.alone_ns / 1e9 * device.host_link.in_bandwidth * device.host_link.efficiency)
    return (
        Copy(nbytes=nbytes, source=Memory.HOST),
        "its size is not recorded and is taken to be what the link moves in its time alone",
    )


def _saved_together(region: OverlappedRegion, outcome: Outcome, /, *, fill: float) -> tuple[float, float]:
    """What the strategy saves of a region's cost, and how far off that may be.

    ``fill`` is the shorter side's time over the longer side's in the whole window: so much of the longer side
    there is for the shorter one to run beside.
    """
    compute_rate, communication_rate = outcome.rates
    rate, other_rate, other_ns = compute_rate, communication_rate, region.communication_ns or 0
    if region.cost_ns != region.compute_lost_ns:  # communication is the side that is busy longer
        rate, other_rate, other_ns = communication_rate, compute_rate, region.compute_ns or 0
    room_ns = other_ns / max(fill, 1e-3) / max(rate, 1e-3)
    together_ns = min(other_ns / max(other_rate, 1e-3), room_ns)
    exposed_ns = max(0.0, other_ns - other_rate * together_ns)
    loses_ns = max(0.0, 1 - rate) * together_ns + exposed_ns
    doubt_ns = outcome.uncertainty * (rate + other_rate) * together_ns
    return (region.cost_ns or 0) - loses_ns, doubt_ns


def _row(
    recorded: RecordedOverlap, compute: Compute, communication: Collective | Copy, device: Device, /
) -> Row:
    """The two kernels; where both ran together, as many of the one as last as long as the other."""
    if recorded.kind != "contention":
        feeds = recorded.kind == "exposed_after"
        dependence = Dependence.COMPUTE_FEEDS_COMMUNICATION if feeds else Dependence.NONE
        return Row(pair=Pair(compute=compute, communication=communication, dependence=dependence))
    ratio = alone_ns(communication, device) / max(1.0, alone_ns(compute, device))
    kernels = max(LEAST_KERNELS, min(MOST_KERNELS, round(ratio)))
    if not 0.8 < ratio / kernels < 1.25:
        # Whole pages for each rank: odd sizes are copied in two pieces, which the trace's size is not.
        page = PAGE * (communication.ranks if isinstance(communication, Collective) else 1)
        pages = max(1, round(communication.nbytes * kernels / ratio / page))
        communication = dataclasses.replace(communication, nbytes=pages * page)
    return Row(pair=Pair(compute=compute, communication=communication), kernels=kernels)
