"""Joins ranks into one analysis: waiting and transfer, clocks, what to say first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from conccl.advise.advice import advice_of
from conccl.advise.analysis import Analysis, RankAnalysis, RulesUsed
from conccl.advise.costs import costliest
from conccl.advise.rank import RankFindings
from conccl.core.errors import TraceError
from conccl.core.timeline import Mask
from conccl.traces.clocks import check_clocks
from conccl.traces.collectives import Waiting, arrivals, stragglers, summaries
from conccl.traces.findings import ClockCheck, Unclassified
from conccl.traces.matching import SHARED_CLOCK_NS, match
from conccl.traces.transfers import transfer_contention

KEPT = 200
"""Exposed collectives, regions and unclassified kernels that are kept over all ranks."""

WELL_MATCHED = 0.9
"""Below this share of collective calls matched, waiting and transfer are warned about."""

UNCLASSIFIED_WARNED = 0.1


def join(
    findings: Sequence[RankFindings],
    /,
    *,
    paths: tuple[str, ...],
    rules: RulesUsed,
    step: int | None,
    device: str | None,
    problems: tuple[TraceError, ...],
) -> Analysis:
    """One analysis of all these ranks; of several GPUs of one rank the first is matched with other ranks."""
    findings = sorted(findings, key=lambda each: each.analysis.rank)
    first = {each.analysis.rank: each for each in reversed(findings)}
    calls = [each.calls for _, each in sorted(first.items())]
    matches = match(calls)
    clock = check_clocks(calls, matches)
    arrived = arrivals(calls, matches, offsets_ns={} if clock is None else clock.offsets_ns)
    clocks_agree = clock is not None and clock.residual_ns <= SHARED_CLOCK_NS
    findings = [
        _with_waiting(each, arrived.split(each.calls)) if first[each.analysis.rank] is each else each
        for each in findings
    ]
    world_size = max((each.world_size for each in findings if each.world_size), default=None)
    transfers = transfer_contention(
        calls, arrived, exposed_ns={rank: each.call_exposed_ns for rank, each in first.items()}
    )
    exposed = tuple(e for each in findings for e in each.exposed)
    regions = tuple(region for each in findings for region in each.regions)
    analysis = Analysis(
        paths=paths,
        device=device or _common(each.analysis.device_name for each in findings),
        rules=rules,
        step=step,
        world_size=world_size,
        missing_ranks=_missing(first, world_size=world_size),
        ranks=tuple(each.analysis for each in findings),
        clock=clock,
        collectives=summaries(calls, arrived, clocks_agree=clocks_agree),
        stragglers=stragglers(arrived),
        contention=tuple(
            sorted(
                (*(kernel for each in findings for kernel in each.contention), *transfers),
                key=lambda kernel: -1 if kernel.excess_ns is None else kernel.excess_ns,
                reverse=True,
            )
        ),
        regions=tuple(
            sorted(regions, key=lambda region: -1 if region.cost_ns is None else region.cost_ns, reverse=True)
        )[:KEPT],
        exposed=tuple(sorted(exposed, key=lambda e: -e.exposed_ns))[:KEPT],
        costs=costliest(exposed, regions, ranks=len(findings)),
        unclassified=_unclassified(findings),
        advice=(),
        warnings=(),
        problems=problems,
    )
    analysis = dataclasses.replace(analysis, warnings=_warnings(analysis, findings))
    shared = sum(each.shared_stream_ns for each in findings) // max(1, len(findings))
    return dataclasses.replace(analysis, advice=advice_of(analysis, shared_stream_ns=shared))


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


def _warnings(analysis: Analysis, findings: Sequence[RankFindings], /) -> tuple[str, ...]:
    """What to know before believing the figures, the gravest first."""
    return (
        *_no_communication(analysis, findings),
        *_missing_warning(analysis),
        *_matching_warning(analysis),
        *_clock_warning(analysis.clock),
        *_of_ranks(analysis.ranks),
        *_unclassified_warning(analysis),
    )


def _no_communication(analysis: Analysis, findings: Sequence[RankFindings], /) -> tuple[str, ...]:
    """Loud: several ranks that never talk means that the rules miss their kernels."""
    several = (analysis.world_size or 1) > 1 or len({rank.rank for rank in analysis.ranks}) > 1
    silent = [each for each in findings if not each.analysis.split.communication_ns]
    if not several or len(silent) < len(findings):
        return ()
    world = analysis.world_size or len(findings)
    names = list(dict.fromkeys(name for each in silent for name in each.candidates))[:5]
    candidates = f" The likeliest candidates: {'; '.join(names)}." if names else ""
    return (
        f"NO COMMUNICATION FOUND in a run of {world} ranks: either these steps have none, or its kernels are"
        f" unknown, and then every figure here is wrong.{candidates} Name them in a rules file (--rules).",
    )


def _missing_warning(analysis: Analysis, /) -> tuple[str, ...]:
    if not analysis.missing_ranks:
        return ()
    return (
        f"{len(analysis.missing_ranks)} of {analysis.world_size} ranks are missing here"
        f" ({spans(analysis.missing_ranks)}): waiting for them counts as transfer.",
    )


def _matching_warning(analysis: Analysis, /) -> tuple[str, ...]:
    calls = sum(collective.calls for collective in analysis.collectives)
    matched = sum(collective.matched for collective in analysis.collectives)
    if len(analysis.ranks) < 2 or not calls or matched >= WELL_MATCHED * calls:
        return ()
    return (
        f"{matched} of {calls} collective calls could be matched across ranks: the others are not split.",
    )


def _clock_warning(clock: ClockCheck | None, /) -> tuple[str, ...]:
    if clock is None or not any(clock.offsets_ns.values()):
        return ()
    largest = max(abs(offset) for offset in clock.offsets_ns.values())
    trusted = (
        "after that they agree"
        if clock.residual_ns <= SHARED_CLOCK_NS
        else f"they still differ by {clock.residual_ns / 1e3:.0f} us, so skews are left out"
    )
    return (f"The ranks' clocks differ by up to {largest / 1e6:.3f} ms and were aligned; {trusted}.",)


def _of_ranks(ranks: Sequence[RankAnalysis], /) -> tuple[str, ...]:
    """Each rank's own warnings, equal ones together."""
    having: dict[str, list[int]] = {}
    for rank in ranks:
        for warning in rank.warnings:
            having.setdefault(warning, []).append(rank.rank)
    return tuple(
        f"rank{'s' if len(numbers) > 1 else ''} {spans(numbers)}: {warning}"
        for warning, numbers in having.items()
    )


def _unclassified_warning(analysis: Analysis, /) -> tuple[str, ...]:
    share = sum(kernel.share for kernel in analysis.unclassified)
    if share < UNCLASSIFIED_WARNED:
        return ()
    return (
        f"{100 * share:.0f} % of kernel time is in kernels that no rule knows (counted as compute);"
        " see unclassified.",
    )


def spans(numbers: Sequence[int], /) -> str:
    """Numbers in few words.

    >>> spans([0, 1, 2, 5, 7])
    '0-2, 5, 7'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
