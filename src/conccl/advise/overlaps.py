"""What ran in a rank's costliest overlaps, as far as its trace records it: all that simulating them needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.advise.costs import cover_ns
from conccl.advise.view import View
from conccl.core.timeline import Times
from conccl.traces.breakdown import communicates, computes
from conccl.traces.columns import grouped
from conccl.traces.findings import ExposedCommunication, OverlappedRegion
from conccl.traces.integrals import Numbers
from conccl.traces.intervals import union
from conccl.traces.operators import HostOperator
from conccl.traces.trace import CollectiveCall

KEPT = 5
"""Overlaps of each kind that a rank keeps this of: those that cost it most."""

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel as recorded; of several of one name the one with most time in the overlap."""

    name: str
    alone_ns: int | None
    """Median of its instances alone; None: there are none."""
    duration_ns: int
    """Median of all of them."""
    operator: HostOperator | None = None
    call: CollectiveCall | None = None
    nbytes: int = 0
    """Of a copy; 0: no copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOverlap:
    """Two kernels, and where they met."""

    kind: str
    """contention, exposed (a candidate that might cover it), or exposed_after (the kernel before it)."""
    rank: int
    communication: Kernel
    compute: Kernel
    before: str | None
    """The kernel that `OverlapCost.compute` names: the compute kernel, or the one before what is exposed."""
    fill: float
    """Of the rank's window: the shorter side's time over the longer side's."""
    device_name: str | None
    sm_count: int | None
    world_size: int | None

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What `OverlapCost` of the same overlap says: exposed or contention, and the kernels' names."""
        kind = "contention" if self.kind == "contention" else "exposed"
        return (kind, self.communication.name, self.before)


def recorded_overlaps(
    view: View,
    /,
    *,
    regions: Sequence[OverlappedRegion],
    exposed: Sequence[ExposedCommunication],
    alone_ns: Numbers,
) -> tuple[RecordedOverlap, ...]:
    """The costliest of both kinds; ``alone_ns`` is each row's measured isolated time (NaN: none)."""
    overlaps = _Overlaps(view=view, alone_ns=alone_ns, duration=view.timeline.duration_ns)
    costly = [region for region in regions if region.cost_ns]
    costly.sort(key=lambda region: -(region.cost_ns or 0))
    coverable = sorted((each for each in exposed if cover_ns(each) > 0), key=cover_ns, reverse=True)
    return (*overlaps.of_regions(costly[:KEPT]), *overlaps.of_exposed(coverable[:KEPT]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Overlaps:
    """Finds rows by name."""

    view: View
    alone_ns: Numbers
    duration: Times

    def of_regions(self, regions: Sequence[OverlappedRegion], /) -> Iterator[RecordedOverlap]:
        for region in regions:
            moving, computing = self._named(region.communication[0], region.compute[0])
            if len(moving) and len(computing):
                timeline = self.view.timeline
                beside = union(timeline.start_ns[moving], timeline.end_ns[moving]).coverage(
                    timeline.start_ns[computing], timeline.end_ns[computing]
                )
                yield self._overlap(
                    "contention",
                    self._kernel(moving, weight=self.duration[moving]),
                    self._kernel(computing, weight=beside),
                    before=region.compute[0],
                )

    def of_exposed(self, exposed: Sequence[ExposedCommunication], /) -> Iterator[RecordedOverlap]:
        for each in exposed:
            name = each.candidate or each.before
            if name is None:
                continue
            moving, computing = self._named(each.name, name)
            if len(moving) and len(computing):
                yield self._overlap(
                    "exposed" if each.candidate else "exposed_after",
                    self._kernel(moving, weight=self.duration[moving]),
                    self._kernel(computing, weight=self.duration[computing]),
                    before=each.before,
                )

    def _overlap(
        self, kind: str, communication: Kernel, compute: Kernel, /, *, before: str | None
    ) -> RecordedOverlap:
        trace, split = self.view.trace, self.view.split
        sides = (split.compute_only_ns + split.both_ns, split.communication_ns)
        return RecordedOverlap(
            kind=kind,
            rank=trace.rank,
            communication=communication,
            compute=compute,
            device_name=trace.device_name,
            sm_count=trace.sm_count,
            world_size=trace.world_size,
            before=before,
            fill=min(sides) / max(1, *sides),
        )

    def _named(self, communication: str, compute: str, /) -> tuple[Rows, Rows]:
        timeline = self.view.timeline
        names = {name: number for number, name in enumerate(timeline.names)}
        found = []
        for name, side in (
            (communication, communicates(timeline.activity)),
            (compute, computes(timeline.activity)),
        ):
            found.append(np.flatnonzero(self.view.rows & side & (timeline.name_id == names.get(name, -1))))
        return found[0], found[1]

    def _kernel(self, rows: Rows, /, *, weight: Times) -> Kernel:
        """The rows that do the same and weigh most together."""
        trace, columns = self.view.trace, self.view.timeline.columns
        which = grouped(columns["operator"][rows], columns["collective"][rows], columns["nbytes"][rows])
        chosen = rows[which == np.argmax(np.bincount(which, weights=weight))]
        first = chosen[0]
        operator, call = int(columns["operator"][first]), int(columns["collective"][first])
        alone = self.alone_ns[chosen]
        alone = alone[np.isfinite(alone)]
        return Kernel(
            name=self.view.timeline.names[self.view.timeline.name_id[first]],
            alone_ns=round(float(np.median(alone))) if len(alone) else None,
            duration_ns=round(float(np.median(self.duration[chosen]))),
            operator=trace.operators[operator] if operator >= 0 else None,
            call=trace.collectives[call] if call >= 0 else None,
            nbytes=int(columns["nbytes"][first]),
        )
