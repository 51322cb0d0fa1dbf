"""The measured data are whole and say what they are; the parts that make them do what they say."""

from __future__ import annotations

import gzip
import importlib
import json
import statistics
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
DATA = BENCHMARKS / "data" / "h200-sxm" / "2026-11-30"


def read(name):
    data = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return data["header"], data["rows"]


def load(name, monkeypatch):
    """A measuring module, which is no part of the package, under its own name for as long as a test runs."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS / "measure"), *sys.path])
    for module in ("graphs", "launches", "pool", "rows"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return importlib.import_module(name)


@pytest.mark.parametrize("name", ["gemm", "ops"])
def test_rows_have_times_and_kernels_and_differ(name):
    header, rows = read(name)
    assert header["rows"] == len(rows) > 1400
    assert all(0 < r["us_min"] <= r["us"] <= r["us_max"] for r in rows)
    assert all(r["kernels"] and len(r["kernels"][0]) == len(header["kernel_fields"]) for r in rows)
    measured = {"us", "us_min", "us_max", "sets", "calls", "replays", "timed", "kernels"}
    keys = {json.dumps({k: v for k, v in r.items() if k not in measured}, sort_keys=True) for r in rows}
    assert len(keys) == len(rows)


def test_headers_say_device_versions_and_command():
    for name in ("gemm", "ops", "models", "c3", "sustained"):
        header, _ = read(name)
        assert header["device"] == "h200-sxm"
        for run in header["runs"]:
            assert run["gpu"] == "NVIDIA H200"
            assert {"torch", "cuda", "cudnn", "triton", "date", "command", "nvidia_smi"} <= run.keys()


def test_kernel_times_of_a_model_sum_to_its_total():
    header, rows = read("models")
    us = header["kernel_fields"].index("us")
    for row in rows:
        assert row["n_kernels"] == len(row["kernels"])
        assert sum(k[us] for k in row["kernels"]) / 1e3 == pytest.approx(row["kernel_ms"], abs=1e-4)
        assert (BENCHMARKS / "models" / row["model"].split(":")[0]).exists()


def test_pairs_have_both_sides_alone_and_together():
    _, rows = read("c3")
    pairs = [r for r in rows if r["section"] == "pair"]
    assert len(pairs) > 300
    for r in pairs:
        longer = max(r["compute_alone_us"], r["communication_alone_us"])
        assert r["concurrent_us"] > 0.95 * longer
        assert r["order"] in ("after", "before")


def test_long_load_slows_large_products_and_no_small_ones():
    _, rows = read("sustained")
    held = [r for r in rows if r["section"] == "sustained" and "m" in r and r["dtype"] == "bf16"]
    _, bursts = read("gemm")
    shape = ("m", "n", "k", "layout", "batch", "bias", "dtype")
    burst_us = {tuple(r.get(k) for k in shape): r["us"] for r in bursts}
    slower = [(r["us"] / burst_us[tuple(r.get(k) for k in shape)], r) for r in held]
    flops = [2 * r["m"] * r["n"] * r["k"] * r.get("batch", 1) / r["us"] / 1e6 for r in held]
    large = [s for (s, _), f in zip(slower, flops, strict=True) if f > 600]
    small = [s for (s, _), f in zip(slower, flops, strict=True) if f < 300]
    assert statistics.median(large) > 1.1
    assert statistics.median(small) == pytest.approx(0.98, abs=0.03)


def test_equal_kernels_are_counted_and_keep_their_total(monkeypatch):
    launches = load("launches", monkeypatch)
    kernel = ["a", 1.0, [1, 1, 1], [32, 1, 1], 8, 0, None]
    other = ["b", 5.0, None, None, None, None, 64]
    slower = ["a", 3.0, [1, 1, 1], [32, 1, 1], 8, 0, None]
    wider = ["a", 3.0, [2, 1, 1], [32, 1, 1], 8, 0, None]
    counted = launches.counted([kernel, other, slower, wider])
    assert counted == [["a", 2.0, *kernel[2:], 2], [*other, 1], [*wider, 1]]


def test_launches_belong_to_the_annotation_that_was_open(tmp_path, monkeypatch):
    def row(cat, name, ts, dur, **args):
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}

    events = [
        row("user_annotation", "row 0", 0, 10),
        row("user_annotation", "row 1", 20, 10),
        row("cuda_runtime", "cudaLaunchKernel", 5, 2, correlation=1),
        row("cuda_runtime", "cudaMemsetAsync", 25, 4, correlation=2),
        row("cuda_runtime", "cudaLaunchKernel", 15, 1, correlation=3),
        row("kernel", "k", 22, 3.5, correlation=1, grid=[4, 1, 1], block=[64, 1, 1]),
        row("gpu_memset", "Memset", 40, 1, correlation=2, bytes=4),
        row("kernel", "outside", 50, 1, correlation=3, grid=[1, 1, 1], block=[1, 1, 1]),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    launches = load("launches", monkeypatch).Launches(path)
    found = launches.by_annotation(operators=False)
    assert [k[:3] for k in found["row 0"]] == [["k", 3.5, [4, 1, 1]]]
    assert [k[:2] for k in found["row 1"]] == [["Memset", 1]]
    assert launches.host_calls("row 1") == {"cudaMemsetAsync": {"count": 1, "median_us": 4, "p90_us": 4}}


def test_a_worker_that_died_costs_one_row(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    rows = load("rows", monkeypatch)
    first = rows.RowFile(tmp_path / "gemm.jsonl")
    first.begin("a")
    first.append({"id": "a", "us": 1.0})
    first.begin("b")
    again = rows.RowFile(tmp_path / "gemm.jsonl")
    assert again.done == {"a", "b"}
    assert "died" in (tmp_path / "gemm.jsonl").read_text().splitlines()[-1]
