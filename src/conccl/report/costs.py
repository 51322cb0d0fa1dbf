"""Devices and predicted times as tables for a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conccl.core.hardware import Device
from conccl.core.kinds import DType
from conccl.core.units import format_bandwidth, format_bytes, format_ns
from conccl.costs.catalogue import fields_of
from conccl.costs.prediction import Prediction, mape_percent
from conccl.report.names import shown

MOST_ROWS = 40
"""Rows of predictions shown one by one; the summary counts all."""

_KEYS = frozenset({"op", "family", "us", "us_min", "us_max", "sets", "dtype", "kernels", "calls", "replays"})


def render_devices(devices: Sequence[Device], /) -> RenderableType:
    """One line for each device."""
    table = _table("device", "SMs", "bf16 TFLOP/s", "HBM", "HBM bandwidth", "to peers", "by")
    for device in devices:
        rate = device.peak_flops.get(DType.BF16)
        table.add_row(
            Text(device.name),
            str(device.sm_count),
            "-" if rate is None else f"{rate / 1e12:.0f}",
            format_bytes(device.hbm_nbytes),
            format_bandwidth(device.hbm_bandwidth),
            format_bandwidth(device.peer_link.out_bandwidth),
            Text(device.peer_topology),
        )
    return table


def render_device(device: Device, /) -> RenderableType:
    """Every number of a device with its source, as lines of its file would have them."""
    lines = [Text(f"{device.name} ({device.vendor})", style="bold")]
    for field, value in fields_of(device).items():
        line = Text(f"{field} = {f'{value:g}' if isinstance(value, float) else value}")
        lines.append(line.append(f"  # {shown(device.sources.get(field, 'default'))}", style="dim"))
    return Group(*lines)


def render_predictions(predictions: Sequence[Prediction], /) -> RenderableType:
    """The first rows, then the error of each op's rows where there are measured times."""
    table = _table("row", "op", "sizes", "predicted", "+-", "measured", "error", left=("sizes",))
    for prediction in predictions[:MOST_ROWS]:
        table.add_row(*_cells(prediction))
    parts: list[RenderableType] = [table]
    if len(predictions) > MOST_ROWS:
        parts.append(Text(f"and {len(predictions) - MOST_ROWS} more (all of them in the JSON)", style="dim"))
    if mape_percent(predictions) is not None:
        parts.append(_summary(predictions))
    return Group(*parts)


def _cells(prediction: Prediction) -> tuple[str | Text, ...]:
    row, error = prediction.row, prediction.error_percent
    sizes = " ".join(f"{key}={value}" for key, value in row.items() if key not in _KEYS)
    if prediction.predicted_us is None:
        return (str(prediction.index), "", Text(shown(prediction.problem), style="red"), "", "", "", "")
    spread = prediction.uncertainty
    return (
        str(prediction.index),
        Text(shown(f"{row.get('op', 'gemm')} {row.get('dtype', 'bf16')}")),
        Text(shown(sizes)),
        format_ns(prediction.predicted_us * 1e3),
        "-" if spread is None else f"{100 * spread:.0f} %",
        "-" if prediction.measured_us is None else format_ns(prediction.measured_us * 1e3),
        "-" if error is None else f"{error:+.1f} %",
    )


def _summary(predictions: Sequence[Prediction]) -> Table:
    by_op: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        if prediction.error_percent is not None:
            by_op[shown(str(prediction.row.get("op", "gemm")))].append(prediction)
            by_op["all"].append(prediction)
    table = _table("op", "rows", "mean error", "worst")
    for op, found in sorted(by_op.items(), key=lambda item: (item[0] == "all", item[0])):
        worst = max(abs(each.error_percent or 0.0) for each in found)
        table.add_row(Text(op), str(len(found)), f"{mape_percent(found):.1f} %", f"{worst:.1f} %")
    return table


def _table(*columns: str, left: Sequence[str] = (), **options: Any) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), **options)
    for index, column in enumerate(columns):
        wide = column in left
        table.add_column(column, justify="left" if index == 0 or wide else "right", no_wrap=not wide)
    return table
