"""What to do about it, in sentences, each with what it costs not to: the costliest first.

Costs are means over ranks, in the window that the analysis is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import cast

from conccl.advise.analysis import Analysis
from conccl.core.units import format_ns
from conccl.traces.findings import Advice, Contention, ExposedCommunication, OverlapCost

EXPOSURES_KEPT = 3

WORTH = 0.005
"""Advice that would bring less than this share of the span is left out."""

NAME_LENGTH = 60


def advice_of(analysis: Analysis, /, *, shared_stream_ns: int = 0) -> tuple[Advice, ...]:
    """All advice worth giving; ``shared_stream_ns`` is communication on streams that also compute."""
    count = max(1, len(analysis.ranks))
    span = sum(rank.split.span_ns for rank in analysis.ranks) / count
    found = [
        *_exposed(analysis.costs),
        *_waiting(analysis),
        *_contention(analysis.contention, ranks=count),
        *_one_stream(shared_stream_ns),
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


def _one_stream(shared_ns: int, /) -> Iterator[Advice]:
    if shared_ns:
        yield Advice(
            title="Put communication on a stream of its own",
            detail=f"{format_ns(shared_ns)} a rank of exposed communication run on streams that also compute,"
            " where nothing can overlap.",
            cost_ns=shared_ns,
        )
