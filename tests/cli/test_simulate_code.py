"""`conccl simulate file.py:function`: the contract, and what is said of code that cannot be captured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from conccl.cli.main import app
from conccl.core.errors import InputError, UnknownNameError

pytestmark = pytest.mark.torch

CODE = """
import torch


def train(width="64"):
    model = torch.nn.Linear(int(width), int(width))
    x = torch.randn(8, int(width))
    return lambda: model(x).sum().backward()


def broken():
    return lambda: torch.ones(2, 3) @ torch.ones(2, 3)


def replicas():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4096, 4096))
    x = torch.randn(8, 4096)
    return lambda: model(x).square().mean().backward()


def nothing():
    return 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "work.py"
    path.write_text(CODE)
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(
        app, ["simulate", *map(str, arguments), "--device", "h200-sxm"], catch_exceptions=False
    )
    assert result.exit_code == 0
    return result.stdout


def test_keys_are_the_contract_and_reruns_are_equal(file: Path) -> None:
    text = run(f"{file}:train", "128", "--format", "json")
    found = json.loads(text)
    assert found["schema"] == "conccl.simulate/1"
    assert (found["executor"], found["device"]) == ("sim", "h200-sxm")
    for key in ("iteration_ns", "kernel_ns", "kernels", "exposed_communication_ns"):
        assert isinstance(found[key], int), key
    assert found["kernels"] == 8
    assert 0 < found["kernel_ns"] < found["iteration_ns"]
    assert 0 < found["mfu"] < 1
    assert found["unmodelled"] == []
    assert run(f"{file}:train", "128", "--format", "json") == text


def test_a_table_and_a_trace(file: Path, tmp_path: Path) -> None:
    trace = tmp_path / "step.json"
    text = run(f"{file}:train", "--perfetto", trace).replace("\n", "")
    assert "work.py:train: one step (simulated)" in text
    names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    assert "addmm" in names


def test_a_faster_memory_needs_less_kernel_time(file: Path) -> None:
    varied = ("--vary", "device.hbm_bandwidth=1e12,8e12", "--format", "json")
    slow, fast = json.loads(run(f"{file}:train", "8192", *varied))["variations"]
    assert slow["kernel_ns"] > fast["kernel_ns"]


def test_several_gpus_have_communication_that_nothing_covers(file: Path) -> None:
    found = json.loads(run(f"{file}:replicas", "--gpus", "8", "--format", "json"))
    assert found["gpus"] == 8
    assert 0 < found["exposed_communication_ns"] < found["iteration_ns"]
    assert "exposed" in run(f"{file}:replicas", "--gpus", "8")


def refused(error: type[Exception], target: object, *more: object) -> str:
    with pytest.raises(error) as caught:
        run(target, *more)
    return str(caught.value)


def test_what_is_wrong_is_said(file: Path) -> None:
    assert "no file" in refused(InputError, f"{file.parent}/missing.py:train")
    assert "train" in refused(UnknownNameError, f"{file}:trian")
    assert "returned int" in refused(InputError, f"{file}:nothing")
    message = refused(InputError, f"{file}:broken")
    assert "work.py" in message
    assert "RuntimeError" in message
    assert "only file.py:function" in refused(InputError, "llama3-8b", "x")
