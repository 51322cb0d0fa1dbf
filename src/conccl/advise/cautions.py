"""What to know before believing an analysis's figures, the gravest first."""

from __future__ import annotations

from collections.abc import Sequence

from conccl.advise.analysis import Analysis, RankAnalysis
from conccl.advise.rank import RankFindings
from conccl.traces.clocks import clocks_agree
from conccl.traces.findings import ClockCheck

WELL_MATCHED = 0.9
"""Below this share of collective calls matched, waiting and transfer are warned about."""

UNCLASSIFIED_WARNED = 0.1
"""Share of kernel time in unknown kernels from which on they are warned about."""


def cautions(analysis: Analysis, findings: Sequence[RankFindings], /) -> tuple[str, ...]:
    """All that apply."""
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
    means = (
        "waiting for them counts as transfer"
        if len(analysis.ranks) > 1
        else "of one rank alone it is not known what is waiting and what transfer"
    )
    return (
        f"{len(analysis.missing_ranks)} of {analysis.world_size} ranks are missing here"
        f" ({spans(analysis.missing_ranks)}): {means}.",
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
        if clocks_agree(clock)
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
