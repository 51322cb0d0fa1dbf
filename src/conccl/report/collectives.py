"""Collectives' times and bandwidths in nccl-tests' columns, and as its JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from conccl.bench.collectives import CollectiveRow, Timing, average_bus_bandwidth

_WIDTHS = "{:>12} {:>12} {:>8} {:>6} {:>5}"
_TIMING = "  {:>8} {:>7} {:>7} {:>6}"


def header_lines() -> list[str]:
    """What stands above the rows; lines that are no data begin with #."""
    ways = f"{'out-of-place':^31}  {'in-place':^31}"
    return [
        f"#{'':49}{ways}".rstrip(),
        "#"
        + _WIDTHS.format("size", "count", "type", "redop", "root")[1:]
        + 2 * _TIMING.format("time", "algbw", "busbw", "#wrong"),
        "#"
        + _WIDTHS.format("(B)", "(elements)", "", "", "")[1:]
        + 2 * _TIMING.format("(us)", "(GB/s)", "(GB/s)", ""),
    ]


def row_line(row: CollectiveRow, /) -> str:
    """One size."""
    head = _WIDTHS.format(row.nbytes, row.count, row.dtype, row.redop or "none", row.root)
    return head + _timing(row, row.out_of_place) + _timing(row, row.in_place)


def footer_lines(rows: Sequence[CollectiveRow], /) -> list[str]:
    """What stands below them."""
    wrong = sum(row.nwrong for row in rows)
    mean = average_bus_bandwidth(rows)
    return [
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# Avg bus bandwidth    : {mean / 1e9:g}" if mean is not None else "# Avg bus bandwidth    : N/A",
    ]


def result(row: CollectiveRow, /) -> dict[str, Any]:
    """One size as nccl-tests' JSON has it."""
    found: dict[str, Any] = {
        "size": row.nbytes,
        "count": row.count,
        "type": row.dtype,
        "redop": row.redop or "none",
        "root": row.root,
        "out_of_place": _result(row, row.out_of_place),
        "in_place": _result(row, row.in_place),
        "how": row.how or None,
    }
    for name, timing in (("out_of_place", row.out_of_place), ("in_place", row.in_place)):
        if timing is not None:
            found[f"{name}_per_iter"] = _per_iteration(timing)
    return found


def _timing(row: CollectiveRow, timing: Timing | None) -> str:
    if timing is None:
        return _TIMING.format("N/A", "N/A", "N/A", "N/A")
    algorithm, bus = row.bandwidths(timing)
    wrong = "N/A" if timing.nwrong is None else timing.nwrong
    return _TIMING.format(_time(timing.time_ns / 1e3), _figure(algorithm / 1e9), _figure(bus / 1e9), wrong)


def _time(us: float) -> str:
    return f"{us:.2f}" if us < 10_000 else f"{us:.0f}"


def _figure(bandwidth: float) -> str:
    return f"{bandwidth:.2f}"


def _result(row: CollectiveRow, timing: Timing | None) -> dict[str, Any] | None:
    if timing is None:
        return None
    algorithm, bus = row.bandwidths(timing)
    return {
        "time": timing.time_ns / 1e3,
        "alg_bw": algorithm / 1e9,
        "bus_bw": bus / 1e9,
        "nwrong": timing.nwrong,
    }


def _per_iteration(timing: Timing) -> dict[str, Any]:
    times = sorted(one / 1e3 for one in timing.times_ns)
    mean = statistics.fmean(times)
    deviation = statistics.stdev(times) if len(times) > 1 else 0.0
    return {
        "min_us": times[0],
        "max_us": times[-1],
        "avg_us": mean,
        "p50_us": statistics.median(times),
        "p95_us": _quantile(times, 0.95),
        "p99_us": _quantile(times, 0.99),
        "stdev_us": deviation,
        "cv_pct": 100 * deviation / mean if mean else None,
        "times_us": [one / 1e3 for one in timing.times_ns],
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The least sample that so many are not above."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
