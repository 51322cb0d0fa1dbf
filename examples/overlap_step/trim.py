"""Cuts a profiler trace down to the rows that say when the GPU did what, and who launched it.

Kept: every GPU row (kernels, copies, memsets) with all its arguments, the host call that launched it, the
operator that made the call (with its input shapes), host calls that synchronise, annotations, and names of
processes and threads.
Dropped: operators and host calls that put nothing on the GPU, arrows between rows (the correlation number
says the same), strides and concrete inputs of operators, and the names of the file and of the host.
Times stay as recorded.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

GPU_ROWS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
ANNOTATIONS = frozenset({"user_annotation", "gpu_user_annotation"})
HOST_CALLS = frozenset({"cuda_runtime", "cuda_driver"})
DROPPED_HEAD = frozenset({"traceEvents", "traceName", "trace_id", "host_name"})
OPERATOR_ARGUMENTS = frozenset({"External id", "Input Dims", "Input type", "Sequence number"})

Row = dict[str, Any]


def write_trimmed(*, raw: Path, trimmed: Path) -> list[Row]:
    """Read a JSON trace, write its trimmed form gzipped, and return the rows kept."""
    trace = json.loads(raw.read_text(encoding="utf-8"))
    rows = trim(trace["traceEvents"])
    head = {k: v for k, v in trace.items() if k not in DROPPED_HEAD}
    head["trimmed"] = "rows that put nothing on the GPU are left out; see trim.py beside the recording script"
    body = json.dumps({**head, "traceEvents": rows}, separators=(",", ":"))
    with gzip.GzipFile(trimmed, "wb", compresslevel=9, mtime=0) as out:
        out.write(body.encode())
    return rows


def trim(rows: list[Row], /) -> list[Row]:
    """The rows to keep, in their order."""
    on_gpu = [row for row in rows if row.get("cat") in GPU_ROWS]
    correlations = {row["args"].get("correlation") for row in on_gpu}
    operators = {row["args"].get("External id") for row in on_gpu}
    kept = [row for row in rows if _is_kept(row, correlations=correlations, operators=operators)]
    processes = {row["pid"] for row in kept if row["ph"] != "M"}
    return [_slim(row) for row in kept if row["pid"] in processes]


def _is_kept(row: Row, *, correlations: set[object], operators: set[object]) -> bool:
    category = row.get("cat")
    arguments = row.get("args", {})
    if row.get("ph") == "M" or category in GPU_ROWS | ANNOTATIONS:
        return True
    if category in HOST_CALLS:
        return arguments.get("correlation") in correlations or "Synchronize" in row["name"]
    return category == "cpu_op" and arguments.get("External id") in operators


def _slim(row: Row) -> Row:
    if row.get("cat") != "cpu_op":
        return row
    return {**row, "args": {k: v for k, v in row["args"].items() if k in OPERATOR_ARGUMENTS}}
