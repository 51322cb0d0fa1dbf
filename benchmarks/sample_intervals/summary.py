"""The tables of the simulation-point study, from its rows: `summary.py ROWS.jsonl`, as Markdown."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

COUNTERS = (
    "cycles", "cpi", "instructions", "loads", "stores", "branches", "branch_misses", "calls",
    "l1i_misses", "l1d_misses", "l2_misses",
)  # fmt: skip
SIMPOINT, PLUGIN, QEMU, ATTACH = "simpoint-valgrind", "simpoint-qemu", "darts-qemu", "darts-attach"
FLOWS = (SIMPOINT, PLUGIN, QEMU, ATTACH)


def main() -> None:
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
    print(accuracy(rows))
    print(counters(rows))
    print(turnaround(rows))


def accuracy(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| program | instructions | exp-bbv: points, CPI | plugin: points, cycles "
        "| DARTS, QEMU: points, cycles | DARTS, attach: points, cycles, CPI | coverage: SimPoint, attach |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        instructions = row["truth"]["totals"][1] / 1e9
        cells = [row["program"], f"{instructions:.2f} G"]
        for flow, names in (
            (SIMPOINT, ("cpi",)),
            (PLUGIN, ("cycles",)),
            (QEMU, ("cycles",)),
            (ATTACH, ("cycles", "cpi")),
        ):
            cells.append(_points(row[flow], names))
        cells.append(f"{_share(row[PLUGIN])}, {_share(row[ATTACH])}")
        lines.append("| " + " | ".join(cells) + " |")
    lines.append(
        "| **median of the errors** | | "
        + " | ".join(
            [
                _median(rows, SIMPOINT, ("cpi",)),
                _median(rows, PLUGIN, ("cycles",)),
                _median(rows, QEMU, ("cycles",)),
                _median(rows, ATTACH, ("cycles", "cpi")),
                "",
            ]
        )
        + " |"
    )
    both = [row for row in rows if all("error" not in row[flow] for flow in FLOWS)]
    sums = [sum(row[flow]["points"] for row in both) for flow in FLOWS]
    lines.append("| **points in all** | | " + " | ".join(map(str, sums)) + " | |")
    return "\n".join(lines) + "\n"


def counters(rows: list[dict[str, Any]]) -> str:
    lines = ["| median error, % | " + " | ".join(FLOWS) + " |", "|---" * (len(FLOWS) + 1) + "|"]
    for name in COUNTERS:
        cells = [_median(rows, flow, (name,)).rstrip(" %") for flow in FLOWS]
        lines.append(f"| {name.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def turnaround(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| program | load | native | exp-bbv flow | plugin flow | DARTS, QEMU | DARTS, attach "
        "| exp-bbv over QEMU | exp-bbv over attach | plugin over attach | bytes: SimPoint, DARTS |",
        "|---" * 11 + "|",
    ]
    ratios: list[tuple[float, ...]] = []
    for row in rows:
        if any("error" in row[flow] for flow in FLOWS):
            lines.append(f"| {row['program']} | not all flows succeeded |" + " |" * 9)
            continue
        times = {unit: _times(row, unit) for unit in ("wall_ns", "cpu_ns")}
        seconds = [f"{wall:.1f} ({cpu:.1f})" for wall, cpu in zip(*times.values(), strict=True)]
        pairs = ((0, 2), (0, 3), (1, 3))
        both = [tuple(times[unit][a] / times[unit][b] for unit in times) for a, b in pairs]
        ratios.append(tuple(value for pair in both for value in pair))
        native = f"{row['native']['wall_ns'] / 1e9:.1f} ({row['native']['cpu_ns'] / 1e9:.1f})"
        shown = [f"{wall:.1f} ({cpu:.1f})" for wall, cpu in both]
        load = f"{row['load_before']:.0f}-{row['load_after']:.0f}"
        nbytes = f"{row[PLUGIN]['nbytes']:,}, {row[ATTACH]['nbytes']:,}"
        lines.append("| " + " | ".join([row["program"], load, native, *seconds, *shown, nbytes]) + " |")
    middle = [statistics.median(column) for column in zip(*ratios, strict=True)]
    shown = [f"{wall:.1f} ({cpu:.1f})" for wall, cpu in zip(middle[::2], middle[1::2], strict=True)]
    lines.append("| **median** | | | | | | | " + " | ".join(shown) + " | |")
    return "\n".join(lines) + "\n"


def _times(row: dict[str, Any], unit: str) -> list[float]:
    """Seconds of the four flows up to the projection.

    valgrind costs no interval, so its flow takes the detail stage of the plugin's; and its clustering too,
    since the first flow of a process imports scikit-learn.
    """

    def stage(flow: str, name: str) -> float:
        return float(row[flow]["stages"][name][unit]) / 1e9

    def whole(flow: str) -> float:
        return sum(stage(flow, name) for name in ("profile", "cluster", "detail"))

    exp_bbv = stage(SIMPOINT, "profile") + stage(PLUGIN, "cluster") + stage(PLUGIN, "detail")
    return [exp_bbv, whole(PLUGIN), whole(QEMU), whole(ATTACH)]


def _points(flow: dict[str, Any], names: tuple[str, ...]) -> str:
    if "error" in flow:
        return "refused"
    return ", ".join([str(flow["points"]), *(f"{100 * flow['errors'][name]:+.2f} %" for name in names)])


def _median(rows: list[dict[str, Any]], flow: str, names: tuple[str, ...]) -> str:
    found = []
    for name in names:
        values = [
            abs(row[flow]["errors"][name])
            for row in rows
            if "error" not in row[flow] and row[flow]["errors"][name] is not None
        ]
        found.append(f"{100 * statistics.median(values):.2f} %")
    return ", ".join(found)


def _share(flow: dict[str, Any]) -> str:
    coverage = flow.get("coverage")
    return "-" if coverage is None else f"{100 * coverage:.1f} %"


if __name__ == "__main__":
    main()
