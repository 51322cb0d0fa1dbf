"""Whatever a file holds, the reader raises nothing but its own errors, and what it returns holds together."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conccl.traces.reading import ReadTraces, read_traces
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

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1", "-1", "1.5", "NaN", "9" * 30, "[0, 1]", 1 << 63, 10**17, -(10**18)]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(
        [
            "device",
            "stream",
            "correlation",
            "grid",
            "block",
            "bytes",
            "graph node id",
            "fromDevice",
            "toDevice",
            "Collective name",
            "Process Group Name",
            "Process Group Ranks",
            "Group size",
            "Seq",
            "dtype",
            "In msg nelems",
            "Out msg nelems",
            "Input Dims",
            "Input type",
        ]
    ),
    ANYTHING,
    max_size=6,
)
EVENT = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.just("X") | ANYTHING,
        "cat": st.sampled_from(
            ["kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cpu_op", "user_annotation"]
        )
        | ANYTHING,
        "name": st.sampled_from(["nccl:all_reduce", "ProfilerStep#2", "gemm", "record_param_comms"])
        | ANYTHING,
        "ts": st.integers(0, 100) | ANYTHING,
        "dur": st.integers(0, 100) | ANYTHING,
        "pid": ANYTHING,
        "tid": ANYTHING,
        "args": ARGUMENTS | ANYTHING,
    },
)
fuzz = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)


def check(read: ReadTraces) -> None:
    """What must hold of every trace, however it came about."""
    for trace in read.traces:
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
    for problem in read.problems:
        assert problem.remedy


def _read(path: Path, content: bytes) -> ReadTraces:
    path.write_bytes(content)
    return read_traces([path])


@fuzz
@given(
    events=st.lists(EVENT | ANYTHING, max_size=8),
    top=st.dictionaries(st.text(max_size=5), ANYTHING, max_size=2),
)
def test_events_of_any_shape(tmp_path: Path, events: list[Any], top: dict[str, Any]) -> None:
    content = json.dumps({**top, "traceEvents": [*events, kernel("good", 1, 1)]}).encode()
    read = _read(tmp_path / "t.json", content)
    check(read)
    assert read.problems == ()


@fuzz
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(SEED) - 1), st.integers(0, 20), st.binary(max_size=6)), max_size=6
    ),
    packed=st.booleans(),
)
def test_edited_traces(tmp_path: Path, edits: list[tuple[int, int, bytes]], packed: bool) -> None:
    content = gzip.compress(SEED, 1) if packed else SEED
    for place, cut, put in edits:
        content = content[:place] + put + content[place + cut :]
    check(_read(tmp_path / "t.json", content))


@fuzz
@given(
    content=st.binary(max_size=300),
    start=st.sampled_from([b"", b"{", b"[", b'{"traceEvents":[', b"\x1f\x8b\x08"]),
)
def test_any_bytes(tmp_path: Path, content: bytes, start: bytes) -> None:
    check(_read(tmp_path / "t.json", start + content))


@fuzz
@given(content=st.binary(max_size=2000), name=st.sampled_from(["t.tar", "t.tar.gz", "t.json.gz"]))
def test_any_archive(tmp_path: Path, content: bytes, name: str) -> None:
    check(_read(tmp_path / name, content))


def test_the_seed_itself(tmp_path: Path) -> None:
    read = _read(tmp_path / "t.json", SEED)
    check(read)
    assert [(trace.rank, trace.device) for trace in read.traces] == [(0, "0"), (1, "1")]
    assert read.traces[0].health.sync_rows == 1


@pytest.mark.parametrize("end", range(0, len(SEED), 37))
def test_the_seed_broken_off(tmp_path: Path, end: int) -> None:
    check(_read(tmp_path / "t.json", SEED[:end]))
