"""What ran on the GPU inside each annotated range of a trace, and what launching it cost the host."""

from __future__ import annotations

import bisect
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

KERNEL_FIELDS = ("name", "us", "grid", "block", "registers", "shared_nbytes", "nbytes", "op", "input_dims")
"""What one entry of a ``kernels`` list holds; grid to shared_nbytes are null for copies and memsets, nbytes
for kernels; op is the innermost PyTorch operator that launched it."""

GPU_ROWS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
HOST_CALLS = frozenset({"cuda_runtime", "cuda_driver"})
NAME_AT_MOST = 400

Row = dict[str, Any]


class Launches:
    """A trace whose GPU rows are looked up by the annotation that was open when they were launched."""

    def __init__(self, path: Path, /) -> None:
        events = json.loads(path.read_text(encoding="utf-8", errors="replace"))["traceEvents"]
        self._rows = [r for r in events if r.get("cat") in GPU_ROWS]
        self._gpu = {r["args"]["correlation"]: r for r in self._rows}  # a graph's rows share one
        self._calls = [
            r
            for r in events
            if r.get("cat") in HOST_CALLS and r.get("args", {}).get("correlation") in self._gpu
        ]
        self._calls.sort(key=lambda r: r["ts"])
        self._times = [r["ts"] for r in self._calls]
        self._marks = [r for r in events if r.get("cat") == "user_annotation"]
        self._operators = {
            r["args"]["External id"]: r
            for r in events
            if r.get("cat") == "cpu_op" and "External id" in r.get("args", {})
        }

    def annotations(self, prefix: str, /) -> list[str]:
        """Names of the annotations that begin so, in the order of time."""
        marks = sorted((r for r in self._marks if r["name"].startswith(prefix)), key=lambda r: r["ts"])
        return [r["name"] for r in marks]

    def spans_us(self) -> list[tuple[float, float]]:
        """Start and end of every GPU row, in the order they ran."""
        return sorted((r["ts"], r["ts"] + r["dur"]) for r in self._rows)

    def by_annotation(self, *, operators: bool) -> dict[str, list[list[Any]]]:
        """GPU rows as lists of `KERNEL_FIELDS`, in the order they ran, for each annotation."""
        result = {}
        for mark in self._marks:
            ran = sorted(
                (self._gpu[c["args"]["correlation"]] for c in self._within(mark)), key=lambda r: r["ts"]
            )
            result[mark["name"]] = [self._fields(row, operators=operators) for row in ran]
        return result

    def host_calls(self, annotation: str, /) -> dict[str, dict[str, float]]:
        """Count, median and 90th percentile of the duration (us) of each kind of launching call."""
        durations = defaultdict(list)
        for mark in (r for r in self._marks if r["name"] == annotation):
            for call in self._within(mark):
                durations[call["name"]].append(call["dur"])
        return {
            name: {
                "count": len(values),
                "median_us": round(statistics.median(values), 3),
                "p90_us": round(sorted(values)[int(0.9 * (len(values) - 1))], 3),
            }
            for name, values in durations.items()
        }

    def _within(self, mark: Row) -> list[Row]:
        first = bisect.bisect_left(self._times, mark["ts"])
        last = bisect.bisect_right(self._times, mark["ts"] + mark["dur"])
        return self._calls[first:last]

    def _fields(self, row: Row, *, operators: bool) -> list[Any]:
        arguments = row["args"]
        entry = [
            row["name"][:NAME_AT_MOST],
            round(row["dur"], 3),
            arguments.get("grid"),
            arguments.get("block"),
            arguments.get("registers per thread"),
            arguments.get("shared memory"),
            arguments.get("bytes"),
        ]
        operator = self._operators.get(arguments.get("External id"))
        if operators and operator is not None:
            entry += [operator["name"], operator["args"].get("Input Dims")]
        return entry


def median_of(runs: list[list[list[Any]]], /) -> list[list[Any]]:
    """One list of GPU rows for several runs of one thing: median times where all ran the same kernels."""
    last = runs[-1]
    if any([r[0] for r in run] != [r[0] for r in last] for run in runs):
        return last
    return [
        [row[0], round(statistics.median(run[i][1] for run in runs), 3), *row[2:]]
        for i, row in enumerate(last)
    ]


def counted(kernels: list[list[Any]], /) -> list[list[Any]]:
    """Rows that differ in nothing but time as one, with their mean time and, last, how many they are."""
    equal = defaultdict(list)
    for name, us, *rest in kernels:
        equal[name, json.dumps(rest)].append(us)
    return [
        [name, round(statistics.fmean(times), 3), *json.loads(rest), len(times)]
        for (name, rest), times in equal.items()
    ]
