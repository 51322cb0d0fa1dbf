"""Tables and choices of the policy, for people and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conccl.core.pair import Pair
from conccl.core.units import format_ns, format_share
from conccl.tune.cotune import Cotuned, Setting
from conccl.tune.policy import Choice
from conccl.tune.tables import Tables
from conccl.workloads.pairs import op_text, row_of


def tables_document(tables: Tables, /, *, path: Path) -> dict[str, Any]:
    """What tables hold, in short."""
    return {
        "path": str(path),
        **_source(tables),
        "kinds": {
            kind: [
                {"strategy": one.strategy, "spread": one.spread}
                for one in tables.stretches
                if one.kind == kind
            ]
            for kind in _kinds(tables)
        },
        "slowdown": {str(one.sms): sum(one.factors) / len(one.factors) for one in tables.slowdowns},
    }


def render_tables(tables: Tables, /) -> RenderableType:
    """How far off the tables are on computations that they were not made from, by strategy and kind."""
    kinds = _kinds(tables)
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("error of the time together", no_wrap=True)
    for kind in kinds:
        table.add_column(kind, justify="right")
    spreads = {(one.kind, one.strategy): one.spread for one in tables.stretches}
    for name in dict.fromkeys(one.strategy for one in tables.stretches):
        table.add_row(name, *(_percent(spreads.get((kind, name))) for kind in kinds))
    return Group(Text(_heading(tables), style="bold"), table)


def choices_document(found: Sequence[tuple[Pair, Choice]], tables: Tables, /) -> dict[str, Any]:
    """The JSON of choices."""
    return {**_source(tables), "pairs": [_choice(pair, choice) for pair, choice in found]}


def _choice(pair: Pair, choice: Choice) -> dict[str, Any]:
    return {
        "compute": row_of(pair.compute),
        "communication": row_of(pair.communication),
        "source": pair.source,
        "strategy": choice.name,
        "predicted_ns": choice.predicted_ns,
        "serial_ns": choice.serial_ns,
        "gain": choice.gain,
        "confidence": choice.confidence,
        "reason": choice.reason,
    }


def render_choices(found: Sequence[tuple[Pair, Choice]], tables: Tables, /) -> RenderableType:
    """A pair's computation and communication below each other, what to run it by, and what that saves."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("pair", overflow="fold")
    table.add_column("strategy", no_wrap=True, min_width=len("partitioned:64"))
    for column in ("serial", "expected", "saved", "sure"):
        table.add_column(column, justify="right", no_wrap=True, min_width=len("1.19 ms"))
    for pair, choice in found:
        table.add_row(
            Text(f"{op_text(pair.compute)}\n{op_text(pair.communication)}"),
            choice.name,
            format_ns(choice.serial_ns),
            format_ns(choice.predicted_ns),
            format_share(choice.gain),
            f"{choice.confidence:.2f}",
        )
    reasons = dict.fromkeys(choice.reason for _, choice in found if choice.reason)
    return Group(Text(_heading(tables), style="bold"), table, *(Text(r, style="dim") for r in reasons))


def cotuned_document(found: Sequence[tuple[Pair, Cotuned]], /) -> list[dict[str, Any]]:
    """The JSON of co-tuned pairs."""
    return [
        {
            "compute": row_of(pair.compute),
            "communication": row_of(pair.communication),
            "dependence": str(pair.dependence),
            "source": pair.source,
            "setting": _setting(one.setting),
            "time_ns": one.time_ns,
            "apart": _setting(one.apart),
            "apart_ns": one.apart_ns,
            "measured": one.measured,
            "settings": one.space,
        }
        for pair, one in found
    ]


def _setting(setting: Setting) -> dict[str, Any]:
    return {
        "communication_sms": setting.communication_sms,
        "pieces": setting.pieces,
        "tile": list(setting.tile),
        "partitioned": setting.partitioned,
    }


def render_cotuned(found: Sequence[tuple[Pair, Cotuned]], /, *, device: str) -> RenderableType:
    """One line a pair: the setting for both sides together, and what it saves over each side's own best."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for column in ("compute", "communication"):
        table.add_column(column, overflow="fold")
    for column in ("SMs", "pieces", "tile", "together", "apart", "run"):
        table.add_column(column, justify="right", no_wrap=True, min_width=len("1.19 ms"))
    for pair, one in found:
        setting = one.setting
        table.add_row(
            Text(op_text(pair.compute)),
            Text(op_text(pair.communication)),
            f"{setting.communication_sms}{' of their own' if setting.partitioned else ' first'}",
            str(setting.pieces),
            f"{setting.tile[0]}x{setting.tile[1]}",
            format_ns(one.time_ns),
            "-" if one.apart_ns is None else format_ns(one.apart_ns),
            f"{one.measured}/{one.space}",
        )
    return Group(Text(f"Both sides tuned together on simulated {device}", style="bold"), table)


def _heading(tables: Tables) -> str:
    where = tables.environment
    how = "simulated" if tables.is_simulated else "measured"
    return f"Tables of {where.gpus} x {where.device}, {how}"


def _source(tables: Tables) -> dict[str, Any]:
    where = tables.environment
    return {
        "executor": where.executor,
        "device": where.device,
        "gpus": where.gpus,
        "simulated": tables.is_simulated,
        "versions": where.versions,
    }


def _kinds(tables: Tables) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.kind for one in tables.stretches))


def _percent(spread: float | None) -> str:
    return "-" if spread is None else f"{100 * spread:.0f} %"
