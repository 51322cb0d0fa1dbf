"""Calls over processes and over a Ray cluster: the same results, in order."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from conccl.bench.spreading import Workers, spread, workers_of
from conccl.core.errors import MissingExtraError, UnknownNameError

SOURCE = str(Path(__file__).parents[2] / "src")
CALLS = [(number, 7) for number in range(40)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order(jobs):
    assert list(spread(divmod, CALLS, jobs=jobs)) == [divmod(*each) for each in CALLS]


def test_engines_go_by_name(monkeypatch):
    assert workers_of("joblib") is Workers.JOBLIB
    with pytest.raises(UnknownNameError, match="joblib"):
        workers_of("joblibs")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'conccl\[ray\]'"):
        workers_of("ray")


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: conccl[ray]")
def test_a_ray_cluster_gives_what_processes_give(tmp_path, monkeypatch):
    """In a process of its own: Ray leaves threads and sockets behind (about 15 s, most of it Ray's start)."""
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    words = [
        sys.executable, "-m", "conccl", "characterize", "llama3-8b", "--fsdp", "8", "--device", "h200-sxm",
        "--strategies", "baseline,ce", "--vary", "device.copy_engines.count=1,4", "--format", "json",
    ]  # fmt: skip
    here = subprocess.run([*words, "--jobs", "1"], capture_output=True, text=True, check=True, timeout=120)
    there = subprocess.run(
        [*words, "--engine", "ray", "--output", str(tmp_path)],
        capture_output=True, text=True, check=True, timeout=240,
    )  # fmt: skip
    assert there.stdout == here.stdout
    assert len(list(tmp_path.glob("store.*.jsonl"))) == 2
