"""`conccl sample iterations --replay`: chosen iterations on simulated devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.shared_data import shared
from typer.testing import CliRunner

from conccl.cli.main import app
from conccl.core.errors import InputError, UnknownNameError


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["sample", "iterations", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def found(*arguments: object) -> Any:
    return json.loads(run("--format", "json", *arguments))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text("length\n" + "".join(f"{128 * (1 + i % 12)}\n" for i in range(500)))
    return path


ON = ("--replay", "llama3-8b", "--fsdp", "8", "--device")
FEW = ("--by", "tokens", "--error", "9")


def test_a_log_of_lengths_alone_is_chosen_from_by_simulated_time(log: Path) -> None:
    document = found(log, *ON, "h200-sxm,mi300x", "--whole")
    assert document["executor"] == "sim"
    assert document["device"] == "h200-sxm"
    assert document["statistic"] == "simulated_ns"
    replay = document["replay"]
    assert (replay["executor"], replay["target"]) == ("sim", "llama3-8b")
    here, there = replay["devices"]
    assert [here["device"], there["device"]] == ["h200-sxm", "mi300x"]
    assert here["actual_ns"] == document["actual"]
    assert here["projected_ns"] == document["projected"]
    assert here["error_percent"] == pytest.approx(document["error_percent"])
    assert here["speedup"] == 1
    assert there["error_percent"] < 2
    assert there["speedup_error_percent"] < 2
    assert {"set", "actual_speedup", "simulated"} < set(there)
    weights = {point["length"]: point["weight"] for point in document["seqpoints"]}
    assert [set(point) for point in there["seqpoints"]] == [{"length", "iteration_ns"}] * len(weights)
    total = sum(weights[point["length"]] * point["iteration_ns"] for point in there["seqpoints"])
    assert total == there["projected_ns"]


def test_without_all_of_it_only_the_chosen_are_simulated(log: Path) -> None:
    place = found(log, *ON, "h200-sxm", *FEW)["replay"]["devices"][0]
    assert place["simulated"] == len(place["seqpoints"]) < 12
    assert place["actual_ns"] is place["error_percent"] is place["actual_speedup"] is None


def test_a_device_nobody_has(log: Path) -> None:
    varied = ("--vary", "device.hbm_bandwidth=4.8e12,9.6e12")
    _, fast = found(log, *ON, "h200-sxm", *FEW, *varied)["replay"]["devices"]
    assert fast["set"] == {"hbm_bandwidth": 9.6e12}
    assert fast["speedup"] > 1.01


def test_a_table(log: Path) -> None:
    text = run(log, *ON, "a100-sxm", *FEW)
    assert "llama3-8b, replayed (simulated)" in text
    assert "a100-sxm      " in text


def test_requests_of_a_server_are_served_from_prompt_to_last_token() -> None:
    path = shared("lengths/AzureLLMInferenceTrace_conv.csv")
    columns = ("--lengths", "ContextTokens,GeneratedTokens", "--by", "tokens")
    document = found(path, *columns, "--replay", "llama3-8b", "--device", "h200-sxm", "--error", 5)
    assert document["iterations"] == 19366
    points = document["replay"]["devices"][0]["seqpoints"]
    prompt, generated = points[-1]["length"]
    per_token_ms = points[-1]["iteration_ns"] / 1e6 / generated
    assert 3 < per_token_ms < 30  # 16 GB of weights at 4.8 TB/s, and the prompt of 14,050 tokens
    assert prompt > 10_000


WORK = """
import torch

def train(*sizes):
    batch, length, width = (int(size) for size in sizes)
    weight = torch.zeros(width, width, requires_grad=True)
    x = torch.zeros(batch, length, width)
    return lambda: (x @ weight).sum().backward()
"""


@pytest.mark.torch
def test_captured_code_takes_lengths_where_they_are_wanted(tmp_path: Path, log: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "work.py").write_text(WORK)
    by_name = found(
        log, *FEW, "--replay", f"{tmp_path / 'work.py'}:train", "--device", "h200-sxm", "--",
        "8", "{length}", "1024",
    )  # fmt: skip
    times = [point["iteration_ns"] for point in by_name["replay"]["devices"][0]["seqpoints"]]
    assert times[0] < 1.1 * times[-1] < 10 * times[0]  # launches count, not lengths so short
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("length_tokens,length_width\n64,256\n8192,4096\n")
    at_the_end = found(pairs, "--replay", f"{tmp_path / 'work.py'}:train", "--device", "h200-sxm", "--", "8")
    small, large = at_the_end["replay"]["devices"][0]["seqpoints"]
    assert large["length"] == [8192, 4096]
    assert large["iteration_ns"] > 10 * small["iteration_ns"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--replay", "llama3-8b"], InputError, "--replay needs a device"),
        (["--replay", "llama3-8b", "--device", ","], InputError, "--replay needs a device"),
        (["--replay", "llama3-8", "--device", "h200-sxm"], UnknownNameError, "llama3-8b"),
        (["--replay", "llama3-8b", "--device", "h200"], InputError, "h200-sxm"),
        (["--replay", "llama3-8b", "--device", "h200-sxm"], InputError, "Raise --tp, --pp or --fsdp"),
        ([*ON, "h200-sxm", "--", "7"], InputError, "only file.py:function takes arguments"),
        (["--by", "tokens", "--", "7"], InputError, "only a replayed function"),
        (["--lengths", "size"], UnknownNameError, "unknown column"),
        (["--lengths", "length,length"], InputError, "stands there twice"),
        ([], InputError, "--by tokens, or --replay"),
    ],
)
def test_what_cannot_be_is_explained(
    log: Path, arguments: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(log, *arguments)
