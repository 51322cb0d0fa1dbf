"""A run replayed on simulated devices, for people and for scripts."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conccl.bench.replay import Place, Replay
from conccl.core.units import format_ns
from conccl.report.names import shown
from conccl.sampling.seqpoint import Length


def replay_document(found: Replay, /) -> dict[str, Any]:
    """The ``replay`` of ``conccl.sample.iterations/1``; speedups are over the first device."""
    return {
        "executor": "sim",
        "target": found.target,
        "devices": [_place(found, place) for place in found.places],
    }


def _place(found: Replay, place: Place) -> dict[str, Any]:
    return {
        "device": place.variation.device.name,
        "set": dict(place.variation.changes),
        "projected_ns": place.projected_ns,
        "actual_ns": place.actual_ns,
        "error_percent": place.error_percent,
        "speedup": found.speedup(place),
        "actual_speedup": found.actual_speedup(place),
        "speedup_error_percent": found.speedup_error_percent(place),
        "simulated": len(place.times_ns),
        "seqpoints": [
            {"length": _length(point.length), "iteration_ns": place.times_ns[point.length]}
            for point in found.seqpoints
        ],
    }


def _length(length: Length) -> int | list[int]:
    return length[0] if len(length) == 1 else list(length)


def render_replay(found: Replay, /) -> RenderableType:
    """The whole run on every device, and where all of it was simulated how far off the projection is."""
    is_whole = any(place.actual_ns is not None for place in found.places)
    table = Table(box=box.SIMPLE)
    table.add_column("device")
    columns = ["whole run", "speedup"]
    if is_whole:
        columns += ["all simulated", "error", "speedup", "error"]
    for column in columns:
        table.add_column(column, justify="right")
    for place in found.places:
        cells = [format_ns(place.projected_ns), f"{found.speedup(place):.3f}x"]
        if is_whole:
            actual = found.actual_speedup(place)
            cells += [
                "-" if place.actual_ns is None else format_ns(place.actual_ns),
                _percent(place.error_percent),
                "-" if actual is None else f"{actual:.3f}x",
                _percent(found.speedup_error_percent(place)),
            ]
        table.add_row(Text(shown(place.name)), *cells)
    return Group(Text(f"{shown(found.target)}, replayed (simulated)"), table)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} %"
