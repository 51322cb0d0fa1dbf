"""The shipped traces hold what their README says, and trimming keeps what it must."""

from __future__ import annotations

import gzip
import importlib.util
import json
import statistics
from pathlib import Path

import pytest

from conccl.core.metrics import Overlap

HERE = Path(__file__).parents[2] / "examples" / "overlap_step"
LABELS = ("isolated compute", "isolated communication", "concurrent")
GPU_ROWS = ("kernel", "gpu_memcpy", "gpu_memset")


@pytest.fixture(scope="module")
def trim():
    spec = importlib.util.spec_from_file_location("trim", HERE / "trim.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=["sm", "ce"])
def engine(request):
    return request.param


@pytest.fixture(scope="module")
def steps(engine):
    """Label to the GPU rows of each of its steps."""
    rows = json.loads(gzip.decompress((HERE / f"{engine}.pt.trace.json.gz").read_bytes()))["traceEvents"]
    launched = {
        r["args"]["correlation"]: r["ts"]
        for r in rows
        if r.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in r["args"]
    }
    on_gpu = [r for r in rows if r.get("cat") in GPU_ROWS]
    marks = [r for r in rows if r.get("cat") == "user_annotation" and r["name"] in LABELS]
    found = {label: [] for label in LABELS}
    for mark in marks:
        begin, end = mark["ts"], mark["ts"] + mark["dur"]
        found[mark["name"]].append([r for r in on_gpu if begin <= launched[r["args"]["correlation"]] <= end])
    return found


def is_copy(row):
    return row["name"] == "conccl_host_copy_kernel" or row["cat"] == "gpu_memcpy"


def test_traces_are_small(engine):
    assert (HERE / f"{engine}.pt.trace.json.gz").stat().st_size < 1_000_000


def test_each_side_occurs_isolated_and_concurrent(steps):
    assert [len(steps[label]) for label in LABELS] == [4, 4, 6]
    compute = {r["name"] for r in steps["isolated compute"][0]}
    copies = {r["name"] for r in steps["isolated communication"][0]}
    for rows in steps["concurrent"]:
        assert {r["name"] for r in rows if not is_copy(r)} == compute
        assert {r["name"] for r in rows if is_copy(r)} == copies
        assert sum(map(is_copy, rows)) == 8


def test_the_engine_is_the_one_named(engine, steps):
    kinds = {r["cat"] for r in steps["isolated communication"][0]}
    assert kinds == {"sm": {"kernel"}, "ce": {"gpu_memcpy"}}[engine]
    if engine == "sm":
        assert all(r["args"]["grid"] == [8, 1, 1] for r in steps["isolated communication"][0])


def test_figures_follow_from_the_trace(engine, steps):
    spans = {
        label: round(
            1e3
            * statistics.median(
                max(r["ts"] + r["dur"] for r in rows) - min(r["ts"] for r in rows) for rows in steps[label]
            )
        )
        for label in LABELS
    }
    overlap = Overlap(
        compute_ns=spans["isolated compute"],
        communication_ns=spans["isolated communication"],
        concurrent_ns=spans["concurrent"],
    )
    figures = json.loads((HERE / f"{engine}.figures.json").read_text())["trace"]
    assert overlap.fraction_of_ideal == pytest.approx(figures["fraction_of_ideal"], abs=0.001)
    assert overlap.ideal_speedup == pytest.approx(figures["ideal_speedup"], abs=0.001)


def test_trimming_keeps_launch_and_operator_of_gpu_rows_alone(trim):
    def row(cat, name, **args):
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "args": args}

    kernel = row("kernel", "k", correlation=1, **{"External id": 5})
    launch = row("cuda_runtime", "cudaLaunchKernel", correlation=1)
    wait = row("cuda_runtime", "cudaDeviceSynchronize", correlation=2)
    operator = row("cpu_op", "aten::mm", **{"External id": 5, "Input Dims": [[1]], "Input Strides": [[1]]})
    mark = row("user_annotation", "concurrent")
    other = [
        row("cuda_runtime", "cudaFuncGetAttributes", correlation=3),
        row("cpu_op", "aten::view", **{"External id": 6}),
        row("ac2g", "ac2g"),
        {"ph": "M", "name": "process_name", "pid": 9, "args": {}},
    ]
    name = {"ph": "M", "name": "process_name", "pid": 1, "args": {}}
    slim = {**operator, "args": {"External id": 5, "Input Dims": [[1]]}}
    kept = trim.trim([kernel, launch, wait, operator, mark, name, *other])
    assert kept == [kernel, launch, wait, slim, mark, name]


def test_the_trimmed_trace_names_neither_file_nor_host(engine):
    head = json.loads(gzip.decompress((HERE / f"{engine}.pt.trace.json.gz").read_bytes()))
    assert not {"traceName", "host_name", "trace_id"} & head.keys()
