"""Characterisations for people and for scripts: what each strategy brings each pair."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from conccl.bench.results import Characterization, PairResult, StrategyResult
from conccl.core.metrics import PairClass
from conccl.core.units import format_ns
from conccl.report.names import shown
from conccl.report.pair_table import PairTable
from conccl.workloads.pairs import op_text, row_of

SHOWN = 2
"""Collectives that are named where copy engines are faster than the library."""


def document(found: Characterization, /) -> dict[str, Any]:
    """The JSON of a characterisation; keys are part of the contract."""
    averages = {name: found.average_fraction(name) for name in found.strategies}
    return {
        "executor": found.environment.executor,
        "device": found.environment.device,
        "gpus": found.environment.gpus,
        "pairs": [_pair(pair) for pair in found.pairs],
        "average_fraction_of_ideal": averages,
        "average_fraction_of_ideal_by_class": {
            str(class_): {name: found.average_fraction(name, of=class_) for name in found.strategies}
            for class_ in PairClass
        },
        "skipped": [{"source": one.source, "reason": one.reason} for one in found.skipped],
    }


def _pair(pair: PairResult) -> dict[str, Any]:
    alone = pair.alone
    return {
        "compute": row_of(pair.pair.compute),
        "communication": row_of(pair.pair.communication),
        "dependence": str(pair.pair.dependence),
        "source": pair.pair.source,
        "class": None if alone is None else str(alone.pair_class),
        "compute_ns": None if alone is None else alone.compute_ns,
        "communication_ns": None if alone is None else alone.communication_ns,
        "ideal_speedup": None if alone is None else alone.ideal_speedup,
        "strategies": {name: _strategy(result) for name, result in pair.strategies.items()},
    }


def _strategy(result: StrategyResult) -> dict[str, Any]:
    overlap, measurement = result.overlap, result.measurement
    return {
        "chosen": result.chosen or None,
        "concurrent_ns": None if overlap is None else overlap.concurrent_ns,
        "speedup": None if overlap is None else overlap.speedup,
        "fraction_of_ideal": None if overlap is None else overlap.fraction_of_ideal,
        "communication_ns": result.communication_ns,
        "proved": measurement.proved,
        "status": str(measurement.status),
        "reason": measurement.reason,
    }


def render_characterization(found: Characterization, /) -> RenderableType:
    """Fraction of ideal and speedup of every pair by every strategy, averages, and what needs a word."""
    how = "simulated" if found.environment.executor == "sim" else "measured"
    where = f"{found.environment.gpus} x {found.environment.device}, {how}"
    parts: list[RenderableType] = [Text(f"What strategies bring on {where}", style="bold")]
    if found.pairs:
        parts.append(PairTable(found=found))
    parts += _choices(found)
    parts += _beyond_ideal(found)
    parts += [Text(shown(line), style="yellow") for line in skipped_lines(found)]
    parts += _reasons(found)
    return Group(*parts)


def skipped_lines(found: Characterization, /) -> list[str]:
    """Pairs that were not characterised, those of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for one in found.skipped:
        by_reason.setdefault(one.reason, []).append(one.source or "a pair")
    return [
        f"skipped {sources[0] if len(sources) == 1 else f'{len(sources)} pairs'}: {reason}"
        for reason, sources in by_reason.items()
    ]


def _choices(found: Characterization) -> list[RenderableType]:
    """What a policy chose, by how often."""
    chosen = Counter(
        result.chosen for pair in found.pairs for result in pair.strategies.values() if result.chosen
    )
    if not chosen:
        return []
    texts = (f"{name} ({count})" for name, count in chosen.most_common())
    return [Text(f"The policy chose: {', '.join(texts)}.", style="dim")]


def _beyond_ideal(found: Characterization) -> list[RenderableType]:
    """Why there is more than ideal."""
    faster = {
        op_text(pair.pair.communication): (pair.communication.median_ns, result.communication_ns)
        for pair in found.pairs
        for result in pair.strategies.values()
        if result.communication_ns is not None
    }
    lines = [
        f"{shown(op)}: {format_ns(library_ns)} by the library, {format_ns(own_ns)} by copy engines"
        for op, (library_ns, own_ns) in list(faster.items())[:SHOWN]
        if library_ns is not None and own_ns is not None
    ]
    if not lines:
        return []
    more = f"; {len(faster) - SHOWN} more" if len(faster) > SHOWN else ""
    return [
        Text(
            "Above 1.00 because copy engines are faster alone than the library, against which ideal counts: "
            + "; ".join(lines)
            + more
            + ".",
            style="dim",
        )
    ]


def _reasons(found: Characterization) -> list[RenderableType]:
    """Why a strategy has no figure, once each."""
    reasons = dict.fromkeys(
        (name, result.measurement.reason)
        for pair in found.pairs
        for name, result in pair.strategies.items()
        if result.measurement.reason
    )
    return [Text(f"{name}: {shown(reason)}", style="dim") for name, reason in reasons]
