"""What to do about it, in sentences, each with what it costs not to: the costliest first.

Costs are means over ranks, in the window that the analysis is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import cast

from conccl.advise.advised import Advice, Remedy
from conccl.advise.analysis import Analysis
from conccl.core.units import format_ns
from conccl.traces.findings import Contention, ExposedCommunication, OverlapCost

EXPOSURES_KEPT = 3

WORTH = 0.005
"""Advice that would bring less than this share of the span is left out."""

NAME_LENGTH = 60


def advice_of(
    analysis: Analysis, /, *, shared_stream_ns: int = 0, remedies: Sequence[Remedy] = ()
) -> tuple[Advice, ...]:
    """All advice worth giving; ``shared_stream_ns`` is communication on streams that also compute."""
    count = max(1, len(analysis.ranks))
    span = sum(rank.split.span_ns for rank in analysis.ranks) / count
    found = [
        *_exposed(analysis.costs),
        *_waiting(analysis),
        *_contention(analysis.contention, ranks=count),
        *_one_stream(shared_stream_ns),
        *_remedies(remedies),
    ]
    worth = [advice for advice in found if (advice.cost_ns or 0) >= WORTH * span]
    return tuple(sorted(worth, key=lambda advice: -(advice.cost_ns or 0)))


def brief(name: str, /) -> str:
    """A kernel's name without its template and call arguments.

    >>> brief("void at::native::add_kernel<float, 4>(int, Args)")
    'at::native::add_kernel'
    """
    bare = re.sub(r"^void\s+", "", name)
    bare = re.split(r"(?<=\w)[<(]", bare, maxsplit=1)[0] or name
    return bare if len(bare) <= NAME_LENGTH else f"{bare[: NAME_LENGTH - 1]}…"


def _exposed(costs: Sequence[OverlapCost], /) -> Iterator[Advice]:
    exposed = [cost for cost in costs if isinstance(cost.worst, ExposedCommunication)]
    for cost in exposed[:EXPOSURES_KEPT]:
        worst = cast("ExposedCommunication", cost.worst)
        between = " and ".join(brief(kernel) for kernel in (worst.before, worst.after) if kernel)
        where = f" {'between' if worst.before and worst.after else 'beside'} {between}" if between else ""
        yield Advice(
            title=f"Cover {brief(cost.communication)}",
            detail=f"On rank {worst.rank} {format_ns(worst.exposed_ns)} in {worst.calls} calls run with no"
            f" compute beside it{where}; {format_ns(cost.cost_ns)} a rank could be covered."
            f"{_candidate(worst)}",
            cost_ns=cost.cost_ns,
        )


def _candidate(exposed: ExposedCommunication, /) -> str:
    if exposed.candidate is None or exposed.candidate_ns is None:
        return ""
    return (
        f" A candidate to cover it: {brief(exposed.candidate)} ({format_ns(exposed.candidate_ns)}),"
        f" {exposed.evidence}."
    )


def _waiting(analysis: Analysis, /) -> Iterator[Advice]:
    known = [rank for rank in analysis.ranks if rank.wait_ns is not None and rank.transfer_ns is not None]
    wait = sum(rank.wait_ns or 0 for rank in known) // max(1, len(known))
    transfer = sum(rank.transfer_ns or 0 for rank in known) // max(1, len(known))
    if not wait:
        return
    who = ""
    if analysis.stragglers:
        worst = analysis.stragglers[0]
        who = (
            f" Rank {worst.rank} came last at {worst.last} of {worst.matched} and made the others wait"
            f" {format_ns(worst.caused_ns)}."
        )
    yield Advice(
        title="Balance the ranks",
        detail=f"Of {format_ns(wait + transfer)} a rank in matched collectives, {format_ns(wait)} are waiting"
        f" for other ranks and {format_ns(transfer)} transfer.{who} Overlap cannot remove waiting; equal work"
        " can.",
        cost_ns=wait,
    )


def _contention(contention: Sequence[Contention], /, *, ranks: int) -> Iterator[Advice]:
    for side, other, remedy in (
        (
            "compute",
            "communication",
            "Give communication fewer CTAs, or let copy engines move the bytes.",
        ),
        (
            "communication",
            "compute",
            "Start communication first on a high-priority stream, or reserve SMs for it.",
        ),
    ):
        slowed = [
            kernel
            for kernel in contention
            if kernel.side == side and (kernel.excess_ns or 0) > 0 and kernel.firm
        ]
        if not slowed:
            continue
        cost = sum(kernel.excess_ns or 0 for kernel in slowed) // ranks
        worst = max(slowed, key=lambda kernel: kernel.excess_ns or 0)
        ctas = f" beside communication of about {worst.ctas} CTAs" if side == "compute" and worst.ctas else ""
        yield Advice(
            title=f"{other.capitalize()} slows {side}",
            detail=f"{format_ns(cost)} a rank are lost; most by {brief(worst.name)},"
            f" {worst.slowdown or 1:.2f} times slower under full overlap{ctas}. {remedy}",
            cost_ns=cost,
        )


WORDS = {
    "prioritized": "launch it first, on a high-priority stream",
    "partitioned": "give it SMs of its own",
    "prioritized_partitioned": "launch it first, on SMs of its own",
    "ce": "let copy engines move it",
    "ce_trimmed": "let copy engines move it, and leave the computation a few SMs less",
    "chunked": "compute in chunks and send each as soon as it is there",
    "fused": "send tiles from within the kernel that computes them",
}
"""What each strategy is to somebody who is to use it."""


def _remedies(remedies: Sequence[Remedy]) -> Iterator[Advice]:
    for remedy in remedies:
        if remedy.best is not None:
            yield Advice(
                title=f"{_beside(remedy)}{WORDS[remedy.best]} ({remedy.best})",
                detail=" ".join(filter(None, _sentences(remedy, remedy.best))),
                cost_ns=remedy.gain_ns,
                source="simulated",
                remedy=remedy,
            )


def _beside(remedy: Remedy) -> str:
    name = brief(remedy.communication)
    return f"{name}: " if remedy.kind == "contention" else f"{name} beside {brief(remedy.compute)}: "


def _sentences(remedy: Remedy, best: str) -> Iterator[str]:
    ran = remedy.measured_fraction
    yield f"Simulated on {remedy.device}: {remedy.pair}."
    condition = {
        "exposed": "If neither needs the other, ",
        "exposed_after": f"If {brief(remedy.compute)} produces what is sent, ",
    }.get(remedy.kind, "")
    yield (
        f"{condition}{best} saves {format_ns(remedy.gain_ns)} ± {format_ns(remedy.uncertainty_ns)} of the"
        f" {format_ns(remedy.cost_ns)} that this costs rank {remedy.rank} (simulated;"
        f" {_fractions(remedy)}{'' if ran is None else f'; {ran:.2f} in the trace'})."
    )
    if remedy.assumption:
        yield f"Assumed: {remedy.assumption}."


def _fractions(remedy: Remedy) -> str:
    """Fractions of ideal by strategy, as far as they have a meaning."""
    known = [
        f"{each.name} {each.fraction_of_ideal:.2f}"
        for each in remedy.strategies
        if each.fraction_of_ideal is not None
    ]
    return f"fractions of ideal: {', '.join(known)}" if known else "fractions of ideal have no meaning here"


def _one_stream(shared_ns: int, /) -> Iterator[Advice]:
    if shared_ns:
        yield Advice(
            title="Put communication on a stream of its own",
            detail=f"{format_ns(shared_ns)} a rank of exposed communication run on streams that also compute,"
            " where nothing can overlap.",
            cost_ns=shared_ns,
        )
