"""Two stores side by side, for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conccl.bench.characterize import pair_key
from conccl.bench.compare import Compared, Verdict
from conccl.core.errors import InputError
from conccl.core.measurement import Environment
from conccl.core.records import to_json_value
from conccl.core.units import format_ns
from conccl.report.names import shown
from conccl.workloads.pairs import op_text, pair_of

_STYLES = {Verdict.FASTER: "green", Verdict.SLOWER: "red", Verdict.AMBIGUOUS: "yellow", Verdict.SAME: ""}


def labels_of(path: Path, /) -> dict[str, str]:
    """What the pairs behind the keys of a store are, from the results that lie beside it; empty without."""
    folder = path if path.is_dir() else path.parent
    try:
        pairs = json.loads((folder / "characterize.json").read_text(encoding="utf-8"))["pairs"]
        entries = [{k: entry[k] for k in ("compute", "communication", "dependence")} for entry in pairs]
        known = [pair_of(entry) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError, InputError):
        return {}
    return {pair_key(pair): f"{op_text(pair.compute)}, {op_text(pair.communication)}" for pair in known}


def compared_document(found: Compared, labels: Mapping[str, str], /) -> dict[str, Any]:
    """The JSON of a comparison."""
    return {
        "executor": found.b.executor,
        "device": found.b.device,
        "a": _environment(found.a),
        "b": _environment(found.b),
        "counts": {str(verdict): found.count(verdict) for verdict in Verdict},
        "cells": [
            {
                "cell": cell.label,
                "what": _named(cell.label, labels),
                "a_ns": cell.a_ns,
                "b_ns": cell.b_ns,
                "change": cell.change,
                "noise": list(cell.noise),
                "verdict": str(cell.verdict),
            }
            for cell in found.cells
        ],
        "unmatched": [
            {"cell": one.label, "what": _named(one.label, labels), "reason": one.reason, "broke": one.broke}
            for one in found.unmatched
        ],
    }


def _environment(environment: Environment) -> dict[str, Any]:
    value: dict[str, Any] = to_json_value(environment)
    del value["type"]
    return value


def render_compared(found: Compared, labels: Mapping[str, str], /, *, every: bool) -> RenderableType:
    """Cells that differ, the largest change first, then how many there are of each."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("cell", overflow="fold")
    for column in ("A", "B", "change", "noise"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    cells = [cell for cell in found.cells if every or cell.verdict is not Verdict.SAME]
    for cell in sorted(cells, key=lambda cell: -abs(cell.change)):
        table.add_row(
            Text(shown(_named(cell.label, labels))),
            format_ns(cell.a_ns),
            format_ns(cell.b_ns),
            f"{100 * cell.change:+.1f} %",
            f"{100 * max(cell.noise):.1f} %",
            Text(str(cell.verdict), style=_STYLES[cell.verdict]),
        )
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in Verdict)
    parts: list[RenderableType] = [table] if cells else []
    parts.append(Text(f"{len(found.cells)} cells: {counts}", style="bold"))
    parts += [
        Text(f"{shown(_named(one.label, labels))}: {shown(one.reason)}", style="red" if one.broke else "dim")
        for one in found.unmatched
    ]
    if found.a.versions != found.b.versions:
        parts.append(Text(f"versions differ: {found.a.versions} and {found.b.versions}", style="dim"))
    return Group(*parts)


def _named(label: str, labels: Mapping[str, str]) -> str:
    """A cell's label with its pair spelled out where that is known."""
    head, _, name = label.rpartition("/")
    folder, _, key = head.rpartition("/")
    if key not in labels:
        return label
    return "; ".join(part for part in (folder, labels[key], name) if part)
