"""The whole run on devices that are not there, projected from its chosen iterations."""

from __future__ import annotations

from conccl.bench.replay import Place, Replay
from conccl.core.units import format_ns
from conccl.report.blocks import Cell, Column, DataTable, Section


def replayed_run(found: Replay, /) -> Section:
    """A row each device."""
    is_whole = any(place.actual_ns is not None for place in found.places)
    beside = (
        Column(label="All simulated", numeric=True, help="Every length of the run"),
        Column(label="Error", numeric=True),
        Column(label="Speedup", numeric=True),
        Column(label="Error", numeric=True),
    )
    return Section(
        id="replay",
        title="Replay",
        lead=f"{found.target}, simulated for the chosen lengths alone, times what they stand for.",
        blocks=(
            DataTable(
                title="The whole run by device",
                rule="Simulated. Speedups are over the first device.",
                columns=(
                    Column(label="Device"),
                    Column(label="Whole run", numeric=True),
                    Column(label="Speedup", numeric=True),
                    *(beside if is_whole else ()),
                ),
                rows=tuple(_row(found, place, is_whole=is_whole) for place in found.places),
            ),
        ),
    )


def _row(found: Replay, place: Place, *, is_whole: bool) -> tuple[Cell, ...]:
    cells = [
        Cell(text=place.name),
        Cell(text=format_ns(place.projected_ns), value=place.projected_ns),
        Cell(text=f"{found.speedup(place):.3f} x", value=found.speedup(place)),
    ]
    if is_whole:
        actual = found.actual_speedup(place)
        cells += [
            Cell(text="-" if place.actual_ns is None else format_ns(place.actual_ns), value=place.actual_ns),
            _percent(place.error_percent),
            Cell(text="-" if actual is None else f"{actual:.3f} x", value=actual),
            _percent(found.speedup_error_percent(place)),
        ]
    return tuple(cells)


def _percent(value: float | None) -> Cell:
    return Cell(text="-" if value is None else f"{value:.3f} %", value=value)
