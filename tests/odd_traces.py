"""A small trace with something of everything, and what holds of whatever the reader makes of any bytes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from conccl.core.errors import TraceError
from conccl.traces.trace import Trace
from made_kineto import gpu_row, host_row, kernel, launch, text_of

SEED = text_of(
    [
        host_row("user_annotation", "ProfilerStep#1", 1, 90),
        host_row("cpu_op", "aten::mm", 2, 50, **{"Input Dims": [[2, 3], []], "Input type": ["float"]}),
        host_row("cpu_op", "nccl:all_reduce", 10, 20, **{"Input Dims": [[64]], "Input type": ["float"]}),
        launch(5, 1),
        launch(15, 2),
        launch(60, 3, name="cudaGraphLaunch"),
        kernel("gemm", 20.125, 5, correlation=1, grid=[1, 2, 3], block=[32, 1, 1]),
        kernel(
            "ncclDevKernel_AllReduce", 30, 5.5, correlation=2, stream=8, **{"Collective name": "allreduce"}
        ),
        kernel("in a graph", 61, 1, correlation=3, device=1),
        gpu_row("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 40, 1, bytes=64, fromDevice=0),
        gpu_row("cuda_sync", "Stream Sync", 41, 1),
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "python"}},
        {"ph": "i", "s": "g", "name": "Record Window End", "ts": 100},
    ],
    distributedInfo={"rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]},
    deviceProperties=[{"id": 0, "name": "GPU", "numSms": 4}],
)

LAID_OUT = (
    b'{\n  "schemaVersion": 1,\n  "traceEvents": [\n  '
    + b",\n  ".join(
        b'{\n    "ph": "%b", "cat": "%b", "name": "%b", "pid": 0, "tid": 7,\n    "ts": %d, "dur": 5,'
        b'\n    "args": {\n      "External id": %d,\n'
        b'      "device": 0, "stream": 7, "correlation": %d\n    }\n  }'
        % (phase, category, name, number, number, number)
        for number, (phase, category, name) in enumerate(
            [
                (b"X", b"user_annotation", b"ProfilerStep#1"),
                (b"X", b"cpu_op", b"aten::mm"),
                (b"X", b"cpu_op", b"nccl:all_reduce"),
                (b"X", b"cuda_runtime", b"cudaEventQuery"),
                (b"X", b"cuda_runtime", b"cudaLaunchKernel"),
                (b"s", b"ac2g", b"ac2g"),
                (b"X", b"kernel", b"gemm{lambda}"),
                (b"X", b"gpu_memset", b"Memset (Device)"),
                (b"X", b"gpu_memcpy", b"Memcpy HtoD"),
            ]
        )
    )
    + b'\n  ],\n  "traceName": "t"\n}\n'
)
"""A trace as Kineto itself lays it out."""


def check(traces: Iterable[Trace], problems: Iterable[TraceError] = ()) -> None:
    """What must hold of every trace, however it came about."""
    for trace in traces:
        timeline = trace.timeline
        assert np.all(np.diff(timeline.start_ns) >= 0)
        assert np.all(timeline.duration_ns >= 0)
        assert np.all(timeline.columns["step"] < max(len(trace.steps), 0))
        assert np.all(timeline.columns["collective"] < len(trace.collectives))
        assert np.all(timeline.columns["rule"] < len(trace.rules))
        assert trace.health.rows == len(timeline) > 0
        for lane in range(len(timeline.lanes)):
            rows = np.flatnonzero((timeline.lane_id == lane) & ~timeline.columns["in_graph"])
            assert np.all(timeline.end_ns[rows][:-1] <= timeline.start_ns[rows][1:])
        for text in (*timeline.names, *(step.name for step in trace.steps), *trace.warnings):
            text.encode()  # can be written
    for problem in problems:
        assert problem.remedy
