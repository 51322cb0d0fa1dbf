"""Joins ranks into one analysis: waiting and transfer, clocks, what to say first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from conccl.advise.advice import advice_of
from conccl.advise.advised import Remedy
from conccl.advise.analysis import Analysis, RulesUsed
from conccl.advise.cautions import cautions
from conccl.advise.costs import costliest
from conccl.advise.overlaps import RecordedOverlap
from conccl.advise.rank import RankFindings
from conccl.core.errors import TraceError
from conccl.core.timeline import Mask
from conccl.traces.clocks import check_clocks, clocks_agree
from conccl.traces.collectives import Waiting, arrivals, stragglers, summaries
from conccl.traces.findings import OverlapCost, Unclassified
from conccl.traces.matching import match
from conccl.traces.transfers import transfer_contention

T = TypeVar("T")

Simulate = Callable[[Sequence[OverlapCost], Mapping[int, Sequence[RecordedOverlap]]], tuple[Remedy, ...]]
"""What strategies would bring for the costliest overlaps, from those that each rank recorded."""

KEPT = 200
"""Exposed collectives, regions and unclassified kernels that are kept over all ranks."""


def join(
    findings: Sequence[RankFindings],
    /,
    *,
    paths: tuple[str, ...],
    rules: RulesUsed,
    step: int | None,
    device: str | None,
    problems: tuple[TraceError, ...],
    present: Iterable[int] = (),
    simulate: Simulate | None = None,
) -> Analysis:
    """One analysis of all these ranks, each of another number; further ranks may be ``present``, unread.

    ``simulate`` makes remedies.
    """
    findings = sorted(findings, key=lambda each: each.analysis.rank)
    calls = [each.calls for each in findings]
    matches = match(calls)
    clock = check_clocks(calls, matches)
    arrived = arrivals(calls, matches, offsets_ns={} if clock is None else clock.offsets_ns)
    findings = [_with_waiting(each, arrived.split(each.calls)) for each in findings]
    ranks = [each.analysis.rank for each in findings]
    world_size = max((each.world_size for each in findings if each.world_size), default=None)
    if world_size is not None and world_size <= max(ranks):
        world_size = None  # several GPUs of one process, or numbers that contradict each other
    transfers = transfer_contention(
        calls, arrived, exposed_ns={each.analysis.rank: each.call_exposed_ns for each in findings}
    )
    exposed = tuple(e for each in findings for e in each.exposed)
    regions = tuple(region for each in findings for region in each.regions)
    analysis = Analysis(
        paths=paths,
        device=device or _common(each.analysis.device_name for each in findings),
        rules=rules,
        step=step,
        world_size=world_size,
        missing_ranks=_missing({*ranks, *present}, world_size=world_size),
        ranks=tuple(each.analysis for each in findings),
        clock=clock,
        collectives=summaries(calls, arrived, clocks_agree=clocks_agree(clock), world_size=world_size),
        stragglers=stragglers(arrived),
        contention=_costliest_first(
            (*(kernel for each in findings for kernel in each.contention), *transfers),
            cost=lambda kernel: kernel.excess_ns,
        ),
        regions=_costliest_first(regions, cost=lambda region: region.cost_ns)[:KEPT],
        exposed=_costliest_first(exposed, cost=lambda each: each.exposed_ns)[:KEPT],
        left_out={
            "regions": max(0, len(regions) - KEPT),
            "exposed": max(0, len(exposed) - KEPT),
        },
        costs=costliest(exposed, regions, ranks=len(findings)),
        unclassified=_unclassified(findings),
        advice=(),
        warnings=(),
        problems=problems,
    )
    analysis = dataclasses.replace(analysis, warnings=cautions(analysis, findings))
    shared = sum(each.shared_stream_ns for each in findings) // max(1, len(findings))
    remedies: tuple[Remedy, ...] = ()
    if simulate is not None and analysis.costs:
        remedies = simulate(analysis.costs, {each.analysis.rank: each.overlaps for each in findings})
    return dataclasses.replace(
        analysis,
        remedies=remedies,
        advice=advice_of(analysis, shared_stream_ns=shared, remedies=remedies),
    )


def _costliest_first(found: Iterable[T], /, *, cost: Callable[[T], int | None]) -> tuple[T, ...]:
    """Those of unknown cost last."""

    def known_cost(each: T) -> tuple[bool, int]:
        figure = cost(each)
        return figure is not None, figure or 0

    return tuple(sorted(found, key=known_cost, reverse=True))


def _with_waiting(found: RankFindings, split: Waiting, /) -> RankFindings:
    """The rank with its collectives' time told apart: as a whole, for each step and each exposure."""
    if not split.known.any():
        return found

    def wait_ns(which: Mask) -> int | None:
        return int(split.wait_ns[which].sum()) if split.known[which].any() else None

    def transfer_ns(which: Mask) -> int | None:
        return int(split.transfer_ns[which].sum()) if split.known[which].any() else None

    of_step = [found.calls.step == place for place in range(len(found.analysis.steps))]
    analysis = dataclasses.replace(
        found.analysis,
        wait_ns=wait_ns(split.known),
        transfer_ns=transfer_ns(split.known),
        steps=tuple(
            dataclasses.replace(step, wait_ns=wait_ns(mine), transfer_ns=transfer_ns(mine))
            for step, mine in zip(found.analysis.steps, of_step, strict=True)
        ),
    )
    # At most the whole transfer is exposed, so what is exposed beyond it is waiting.
    waited = np.maximum(found.call_exposed_ns - split.transfer_ns, 0)
    exposed = tuple(
        dataclasses.replace(each, wait_ns=int(waited[mine].sum())) if split.known[mine].all() else each
        for each, mine in ((each, found.call_exposure == place) for place, each in enumerate(found.exposed))
    )
    return dataclasses.replace(found, analysis=analysis, exposed=exposed)


def _common(names: Iterable[str | None], /) -> str | None:
    """The device's name where all ranks have one and the same."""
    found = set(names)
    return found.pop() if len(found) == 1 else None


def _missing(present: Iterable[int], /, *, world_size: int | None) -> tuple[int, ...]:
    ranks = set(present)
    return tuple(rank for rank in range(world_size or 0) if rank not in ranks)


def _unclassified(findings: Sequence[RankFindings], /) -> tuple[Unclassified, ...]:
    """Kernels that no rule knows, over all ranks."""
    total = sum(each.analysis.kernel_ns for each in findings)
    counts: dict[str, int] = {}
    durations: dict[str, int] = {}
    for each in findings:
        for kernel in each.unclassified:
            counts[kernel.name] = counts.get(kernel.name, 0) + kernel.count
            durations[kernel.name] = durations.get(kernel.name, 0) + kernel.duration_ns
    found = [
        Unclassified(
            name=name,
            count=counts[name],
            duration_ns=duration,
            share=duration / total if total else 0.0,
        )
        for name, duration in durations.items()
    ]
    return tuple(sorted(found, key=lambda kernel: (-kernel.duration_ns, kernel.name)))[:KEPT]
