"""The kernel time of a step on several devices, from the chosen kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table

from conccl.bench.few_kernels import Scaled
from conccl.core.units import format_ns


def scaled_document(found: Sequence[Scaled], /) -> list[dict[str, Any]]:
    """The ``scaled`` of ``conccl.sample.kernels/1``."""
    return [
        {
            "device": one.device,
            "projected_ns": one.projected_ns,
            "actual_ns": one.actual_ns,
            "error_percent": one.error_percent,
        }
        for one in found
    ]


def render_scaled(found: Sequence[Scaled], /) -> RenderableType:
    """A row each."""
    table = Table(box=box.SIMPLE)
    table.add_column("device")
    for column in ("kernel time, from the chosen", "from all", "error"):
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(
            one.device,
            format_ns(one.projected_ns),
            "-" if one.actual_ns is None else format_ns(one.actual_ns),
            "-" if one.error_percent is None else f"{one.error_percent:.3f} %",
        )
    return table
