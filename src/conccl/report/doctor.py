"""What the doctor found, for people and for scripts."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conccl.gpu.doctor import Examination
from conccl.gpu.findings import Finding, State
from conccl.report.names import shown

_STYLES = {
    State.OK: "green",
    State.INFO: "",
    State.WARNING: "yellow",
    State.MISSING: "dim",
    State.FAILED: "red",
    State.HUNG: "red",
}


def doctor_document(found: Examination, /) -> dict[str, Any]:
    """The JSON of an examination."""
    return {
        "executor": "gpu" if found.has_gpu else "sim",
        "device": found.device,
        "has_gpu": found.has_gpu,
        "findings": [
            {
                "group": one.group,
                "name": one.name,
                "state": str(one.state),
                "value": one.value,
                "evidence": one.evidence,
                "advice": one.advice,
            }
            for one in found.findings
        ],
    }


def render_doctor(found: Examination, /) -> RenderableType:
    """One table a group, advice below what it is about."""
    parts: list[RenderableType] = []
    for group, findings in groupby(found.findings, key=lambda one: one.group):
        parts += [Text(group, style="bold"), _table(list(findings)), Text("")]
    if not found.has_gpu:
        parts.append(Text("No GPU here, so none was probed.", style="bold"))
    return Group(*parts)


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=2)
    table.add_column(overflow="fold", ratio=3, style="dim")
    for one in findings:
        table.add_row(
            Text(str(one.state), style=_STYLES[one.state]),
            Text(shown(one.name)),
            Text(shown(one.value)),
            Text(shown(one.evidence)),
        )
        if one.advice:
            table.add_row("", "", "", Text(shown(one.advice), style="yellow"))
    return table
