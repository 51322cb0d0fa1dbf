"""Traces made by hand for tests: a row a line, everything that is not said left unknown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conccl.core.timeline import Activity, Clock, Lane, Timeline
from conccl.traces.trace import Annotations, CollectiveCall, Health, RankSource, Step, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    start: int
    end: int
    stream: str = "7"
    activity: Activity = Activity.COMPUTE
    step: int = -1
    launch: int = -1
    ctas: int = 1
    nbytes: int = 0
    collective: int = -1
    operator: int = -1
    rule: int = 0


def made_timeline(rows: Sequence[Row], /, *, rank: int = 0) -> Timeline:
    rows = sorted(rows, key=lambda row: (row.start, row.end))
    names = tuple(dict.fromkeys(row.name for row in rows))
    streams = tuple(dict.fromkeys(row.stream for row in rows))

    def column(values: Sequence[int], kind: type[np.generic]) -> np.ndarray:
        return np.array(values, dtype=kind)

    name_id = column([names.index(row.name) for row in rows], np.int32)
    return Timeline(
        clock=Clock.TRACE,
        start_ns=column([row.start for row in rows], np.int64),
        end_ns=column([row.end for row in rows], np.int64),
        name_id=name_id,
        lane_id=column([streams.index(row.stream) for row in rows], np.int32),
        activity=column([row.activity for row in rows], np.int8),
        names=names,
        lanes=tuple(Lane(rank=rank, device="0", stream=stream) for stream in streams),
        columns={
            "step": column([row.step for row in rows], np.int32),
            "correlation": column(list(range(len(rows))), np.int64),
            "launch_ns": column([row.launch for row in rows], np.int64),
            "ctas": column([row.ctas for row in rows], np.int64),
            "threads": column([128] * len(rows), np.int32),
            "variant": name_id,
            "collective": column([row.collective for row in rows], np.int32),
            "operator": column([row.operator for row in rows], np.int32),
            "nbytes": column([row.nbytes for row in rows], np.int64),
            "in_graph": np.zeros(len(rows), dtype=np.bool_),
            "rule": column([row.rule for row in rows], np.int16),
        },
    )


NO_LABELS = Annotations(
    names=(),
    name_id=np.zeros(0, dtype=np.int32),
    start_ns=np.zeros(0, dtype=np.int64),
    end_ns=np.zeros(0, dtype=np.int64),
    on_gpu=np.zeros(0, dtype=np.bool_),
)


def made_trace(
    rows: Sequence[Row],
    /,
    *,
    rank: int = 0,
    world_size: int | None = None,
    steps: tuple[Step, ...] = (),
    collectives: tuple[CollectiveCall, ...] = (),
    annotations: Annotations | None = None,
    path: str = "made.json",
) -> Trace:
    return Trace(
        path=path,
        rank=rank,
        rank_source=RankSource.GIVEN,
        world_size=world_size,
        device="0",
        device_name=None,
        sm_count=None,
        timeline=made_timeline(rows, rank=rank),
        steps=steps,
        collectives=collectives,
        annotations=annotations or NO_LABELS,
        rules=("some rule",),
        health=Health(rows=len(rows)),
    )


def write_kineto(
    path: Path,
    rows: Sequence[Row],
    /,
    *,
    rank: int = 0,
    world_size: int | None = None,
    steps: Sequence[tuple[int, int, int]] = (),
) -> Path:
    """A trace file as PyTorch's profiler writes it: kernels, their launches, steps (number, start, end)."""
    events: list[dict[str, object]] = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{number}",
            "pid": 1,
            "tid": 1,
            "ts": start / 1000,
            "dur": (end - start) / 1000,
        }
        for number, start, end in steps
    ]
    for correlation, row in enumerate(rows, start=1):
        launch = row.start - 5000 if row.launch < 0 else row.launch
        host = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1}
        events.append({**host, "ts": launch / 1000, "dur": 2, "args": {"correlation": correlation}})
        events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": row.name,
                "pid": 0,
                "tid": int(row.stream),
                "ts": row.start / 1000,
                "dur": (row.end - row.start) / 1000,
                "args": {
                    "device": 0,
                    "stream": int(row.stream),
                    "correlation": correlation,
                    "grid": [row.ctas, 1, 1],
                    "block": [128, 1, 1],
                },
            }
        )
    document: dict[str, object] = {"schemaVersion": 1, "traceEvents": events}
    if world_size is not None:
        document["distributedInfo"] = {"rank": rank, "world_size": world_size}
    path.write_text(json.dumps(document))
    return path
