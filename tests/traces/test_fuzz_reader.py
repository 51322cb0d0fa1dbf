"""Whatever a file holds, the reader raises nothing but its own errors, and what it returns holds together."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conccl.traces.reading import ReadTraces, read_traces
from made_kineto import kernel
from odd_traces import SEED, check

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
    max_size=12,
)
WORK = st.builds(
    lambda cat, name, args: {"ph": "X", "cat": cat, "name": name, "ts": 5, "dur": 2, "pid": 0, "args": args},
    st.sampled_from(["kernel", "gpu_memcpy", "cuda_runtime", "cpu_op", "user_annotation"]),
    st.sampled_from(["nccl:all_reduce", "ncclDevKernel_AllReduce", "record_param_comms", "never heard of"]),
    ARGUMENTS,
)
EVENT = WORK | st.fixed_dictionaries(
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
    check(read.traces, read.problems)
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
    read = _read(tmp_path / "t.json", content)
    check(read.traces, read.problems)


@fuzz
@given(
    content=st.binary(max_size=300),
    start=st.sampled_from([b"", b"{", b"[", b'{"traceEvents":[', b"\x1f\x8b\x08"]),
)
def test_any_bytes(tmp_path: Path, content: bytes, start: bytes) -> None:
    read = _read(tmp_path / "t.json", start + content)
    check(read.traces, read.problems)


@fuzz
@given(content=st.binary(max_size=2000), name=st.sampled_from(["t.tar", "t.tar.gz", "t.json.gz"]))
def test_any_archive(tmp_path: Path, content: bytes, name: str) -> None:
    read = _read(tmp_path / name, content)
    check(read.traces, read.problems)


def test_the_seed_itself(tmp_path: Path) -> None:
    read = _read(tmp_path / "t.json", SEED)
    check(read.traces, read.problems)
    assert [(trace.rank, trace.device) for trace in read.traces] == [(0, "0"), (1, "1")]
    assert read.traces[0].health.sync_rows == 1


@pytest.mark.parametrize("end", range(0, len(SEED), 37))
def test_the_seed_broken_off(tmp_path: Path, end: int) -> None:
    read = _read(tmp_path / "t.json", SEED[:end])
    check(read.traces, read.problems)
