"""Characterisations for people and for scripts: what each strategy brings each pair."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conccl.bench.results import Characterization, PairResult, StrategyResult
from conccl.core.measurement import Status
from conccl.core.metrics import PairClass
from conccl.core.units import format_ns
from conccl.workloads.pairs import op_text, row_of


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
        "concurrent_ns": None if overlap is None else overlap.concurrent_ns,
        "speedup": None if overlap is None else overlap.speedup,
        "fraction_of_ideal": None if overlap is None else overlap.fraction_of_ideal,
        "proved": measurement.proved,
        "status": str(measurement.status),
        "reason": measurement.reason,
    }


def render_characterization(found: Characterization, /) -> RenderableType:
    """Fraction of ideal of every pair by every strategy, then averages and speedups."""
    names = found.strategies
    where = f"{found.environment.gpus} x {found.environment.device}, {found.environment.executor}"
    parts: list[RenderableType] = [Text(f"Fraction of ideal on {where}", style="bold"), _pairs(found, names)]
    parts.append(_averages(found, names))
    parts += [
        Text(f"skipped {one.source or 'a pair'}: {one.reason}", style="yellow") for one in found.skipped
    ]
    parts += _reasons(found)
    return Group(*parts)


def _pairs(found: Characterization, names: Sequence[str]) -> Table:
    table = _table(names, "compute", "communication", "class", "alone", "ideal")
    for pair in found.pairs:
        alone = pair.alone
        if alone is None or alone.ideal_speedup is None:
            continue
        best = max((_fraction(pair, name) or -9.0 for name in names), default=-9.0)
        table.add_row(
            Text(op_text(pair.pair.compute)),
            Text(op_text(pair.pair.communication)),
            str(alone.pair_class),
            f"{format_ns(alone.compute_ns)} + {format_ns(alone.communication_ns)}",
            f"{alone.ideal_speedup:.2f}",
            *(_cell(pair, name, best=best) for name in names),
        )
    return table


def _cell(pair: PairResult, name: str, *, best: float) -> Text:
    fraction = _fraction(pair, name)
    if fraction is None:
        measurement = pair.strategies[name].measurement
        return Text("-" if measurement.status in (Status.OK, Status.UNSUPPORTED) else str(measurement.status))
    text = Text(f"{fraction:.2f}", style="bold" if fraction == best else "")
    return text.append("?") if pair.strategies[name].measurement.proved is False else text


def _fraction(pair: PairResult, name: str) -> float | None:
    result = pair.strategies.get(name)
    return None if result is None or result.overlap is None else result.overlap.fraction_of_ideal


def _averages(found: Characterization, names: Sequence[str]) -> Table:
    table = _table(names, "average", "", "", "", "")
    for label, class_ in (("all pairs", None), *((str(class_), class_) for class_ in PairClass)):
        count = sum(1 for pair in found.pairs if class_ is None or pair.pair_class is class_)
        if not count:
            continue
        averages = (found.average_fraction(name, of=class_) for name in names)
        table.add_row(
            label, f"{count} pairs", "", "", "", *("-" if a is None else f"{a:.2f}" for a in averages)
        )
    speedups = [
        [r.overlap.speedup for p in found.pairs if (r := p.strategies[n]).overlap and r.overlap.speedup]
        for n in names
    ]
    table.add_row("median speedup", "", "", "", "", *(f"{median(s):.2f}" if s else "-" for s in speedups))
    return table


def _reasons(found: Characterization) -> list[RenderableType]:
    """Why a strategy has no figure, once each."""
    reasons = dict.fromkeys(
        (name, result.measurement.reason)
        for pair in found.pairs
        for name, result in pair.strategies.items()
        if result.measurement.reason
    )
    return [Text(f"{name}: {reason}", style="dim") for name, reason in reasons]


def _table(names: Sequence[str], *head: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for column in head:
        table.add_column(column, no_wrap=True, justify="left" if column in head[:3] else "right")
    for name in names:
        table.add_column(name, justify="right")
    return table
