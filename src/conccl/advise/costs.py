"""Ranks what overlap costs: exposed communication and contention in one list, over all ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from conccl.traces.findings import ExposedCommunication, OverlapCost, OverlappedRegion

KEPT = 50


def costliest(
    exposed: Sequence[ExposedCommunication], regions: Sequence[OverlappedRegion], /, *, ranks: int
) -> tuple[OverlapCost, ...]:
    """The same on several ranks is one entry; costs are means over all ``ranks``."""
    found = [*_of_exposed(exposed, ranks=ranks), *_of_regions(regions, ranks=ranks)]
    found.sort(key=lambda cost: (-cost.cost_ns, cost.communication, cost.compute or ""))
    return tuple(cost for cost in found if cost.cost_ns > 0)[:KEPT]


def _of_exposed(exposed: Sequence[ExposedCommunication], /, *, ranks: int) -> list[OverlapCost]:
    groups: dict[tuple[str, str | None, str | None], list[ExposedCommunication]] = defaultdict(list)
    for each in exposed:
        groups[each.name, each.before, each.after].append(each)
    return [
        OverlapCost(
            kind="exposed",
            cost_ns=sum(map(cover_ns, group)) // ranks,
            ranks=len({each.rank for each in group}),
            communication=name,
            compute=before,
            worst=max(group, key=cover_ns),
        )
        for (name, before, _), group in groups.items()
    ]


def cover_ns(exposed: ExposedCommunication, /) -> int:
    """Exposed time that could be covered and is not known to be waiting."""
    return min(exposed.coverable_ns, exposed.exposed_ns - (exposed.wait_ns or 0))


def _of_regions(regions: Sequence[OverlappedRegion], /, *, ranks: int) -> list[OverlapCost]:
    groups: dict[tuple[str, str], list[OverlappedRegion]] = defaultdict(list)
    for region in regions:
        if region.cost_ns is not None:
            groups[region.communication[0], region.compute[0]].append(region)
    return [
        OverlapCost(
            kind="contention",
            cost_ns=sum(region.cost_ns or 0 for region in group) // ranks,
            ranks=len({region.rank for region in group}),
            communication=communication,
            compute=compute,
            worst=max(group, key=lambda region: region.cost_ns or 0),
            source="predicted" if any(region.source == "predicted" for region in group) else "measured",
            uncertainty_ns=sum(region.cost_uncertainty_ns for region in group) // ranks,
        )
        for (communication, compute), group in groups.items()
    ]
