"""Choices of fused operators' ways, for people and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conccl.core.units import format_ns
from conccl.tune.fused_choice import Choice
from conccl.tune.fused_model import NamedCall

Found = Sequence[tuple[NamedCall, Choice]]


def fused_document(found: Found, /, *, device: str) -> dict[str, Any]:
    """The JSON of choices."""
    return {"executor": "sim", "device": device, "calls": [_row(call, choice) for call, choice in found]}


def _row(call: NamedCall, choice: Choice) -> dict[str, Any]:
    problem = call.problem
    return {
        "name": call.name,
        "call": problem.call.value,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "world": problem.world,
        "dtype": problem.dtype.value,
        "way": str(choice.way),
        "predicted_ns": choice.predicted_ns.get(str(choice.way)),
        "serial_ns": choice.predicted_ns.get("serial"),
        "speedup": choice.speedup,
        "is_measured": choice.is_measured,
        "ways_ns": dict(choice.predicted_ns),
        "reason": choice.reason,
    }


def render_fused(found: Found, /, *, device: str) -> RenderableType:
    """One line a call: the way chosen, its time and serial's."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("call", no_wrap=True)
    table.add_column("m x n x k", no_wrap=True)
    table.add_column("way", no_wrap=True)
    for column in ("serial", "expected", "speedup"):
        table.add_column(column, justify="right", no_wrap=True, min_width=len("1.19 ms"))
    for call, choice in found:
        problem = call.problem
        speedup = choice.speedup
        table.add_row(
            Text(f"{call.name}\n  {problem.call.value}"),
            f"{problem.m}x{problem.n}x{problem.k}",
            str(choice.way),
            _time(choice.predicted_ns.get("serial")),
            _time(choice.predicted_ns.get(str(choice.way))),
            "" if speedup is None else f"{speedup:.2f}x",
        )
    measured = any(choice.is_measured for _, choice in found)
    heading = f"Ways of fused operators on {device}, {'measured where it is near, else ' * measured}simulated"
    return Group(Text(heading, style="bold"), table)


def _time(ns: int | None) -> str:
    return "" if ns is None else format_ns(ns)
