"""`conccl simulate` for models: contract, plausibility, and what is said of parallelism that does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app
from conccl.core.errors import InputError, UnknownNameError
from conccl.costs.catalogue import FOLDER


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["simulate", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def document(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--format", "json"))
    return found


LLAMA = ("llama3-70b", "--tp", 8, "--fsdp", 8, "--length", 8192, "--device", "h200-sxm")


def test_keys_are_the_contract() -> None:
    found = document(*LLAMA)
    assert found["schema"] == "conccl.simulate/1"
    assert (found["executor"], found["device"], found["gpus"]) == ("sim", "h200-sxm", 64)
    for key in ("iteration_ns", "kernel_ns", "kernels", "exposed_communication_ns"):
        assert isinstance(found[key], int), key
    assert found["unmodelled"] == []


def test_training_reaches_a_plausible_share_of_peak() -> None:
    """Published runs of such models on such GPUs reach 35 to 55 % of peak."""
    assert 0.3 < document(*LLAMA)["mfu"] < 0.6


def test_the_same_question_has_the_same_answer() -> None:
    assert run(*LLAMA, "--format", "json") == run(*LLAMA, "--format", "json")


def test_a_faster_link_hides_more() -> None:
    found = document(*LLAMA, "--vary", "device.peer_link.out_bandwidth=225e9,450e9,900e9")
    exposed = [each["exposed_communication_ns"] for each in found["variations"]]
    assert exposed == sorted(exposed, reverse=True)
    assert exposed[0] > exposed[-1]


def test_a_table_for_people() -> None:
    text = run(*LLAMA)
    assert "llama3-70b: 1 x 8192 tokens, training; tp 8, fsdp 8 (simulated)" in text


def test_layers_as_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    run(*LLAMA, "--perfetto", path)
    names = {event["name"] for event in json.loads(path.read_text())["traceEvents"]}
    assert "0.attention.qkv" in names


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["llama3-7b", "--device", "h200-sxm"], UnknownNameError, "llama3-8b"),
        (["llama3-8b", "--device", "h201"], UnknownNameError, "h200-sxm"),
        (["llama3-8b", "--device", "h200-sxm", "--tp", "3"], InputError, "These fit: 1, 2, 4"),
        (["llama3-8b", "--device", "h200-sxm", "--gpus", "6"], InputError, "not 6"),
        (["llama3-405b", "--device", "h200-sxm"], InputError, "are missing"),
        (
            ["llama3-8b", "--device", "h200-sxm", "--fsdp", "8", "--length", "10000000"],
            InputError,
            "activations",
        ),
        (
            ["llama3-8b", "--device", "h200-sxm", "--phase", "decode", "--length", "9999999"],
            InputError,
            "KV cache.*are missing. Lower --sequences or --length",
        ),
        (["", "--device", "h200-sxm"], InputError, "no model is named"),
        (["bert-base", "--device", "h200-sxm", "--phase", "decode"], InputError, "makes no tokens"),
        (
            ["llama3-8b", "--device", "h200-sxm", "--set", "sm_count=9", "--vary", "sm_count=9,8"],
            InputError,
            "both change sm_count",
        ),
        (["llama3-8b", "--device", "h200-sxm", "--tp", "8", "--engine", "spark"], UnknownNameError, "ray"),
        (["llama3-8b", "--device", "h200-sxm", "--length", "0"], InputError, "both must be 1 or more"),
        (["llama3-8b", "--device", "h200-sxm", "--phase", "serve"], UnknownNameError, "prefill"),
    ],
)
def test_what_does_not_fit_is_explained(arguments: list[str], error: type[InputError], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        CliRunner().invoke(app, ["simulate", *arguments], catch_exceptions=False)
    assert raised.value.exit_code == 2


SWEEP = (
    *LLAMA,
    "--vary",
    "device.peer_link.out_bandwidth=225e9,450e9",
    "--vary",
    "device.hbm_nbytes=1G,141G",
)


def sweep(*arguments: object) -> dict[str, Any]:
    words = ["simulate", *map(str, (*SWEEP, *arguments)), "--format", "json"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 2  # half of the variations have too little memory
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_one_variation_that_does_not_fit_does_not_lose_the_others() -> None:
    found = sweep()
    assert [one["status"] for one in found["variations"]] == ["unsupported", "ok", "unsupported", "ok"]
    assert "are missing" in found["variations"][0]["reason"]
    assert found["iteration_ns"] == found["variations"][1]["iteration_ns"]


def test_a_sweep_is_kept_drawn_and_the_same_by_processes(tmp_path: Path) -> None:
    first = sweep("--output", tmp_path, "--html", tmp_path / "page.html")
    kept = (tmp_path / "iterations.jsonl").read_text()
    assert sweep("--output", tmp_path) == first
    assert (tmp_path / "iterations.jsonl").read_text() == kept
    (tmp_path / "iterations.jsonl").write_text(kept[: len(kept) * 2 // 3])
    assert sweep("--output", tmp_path, "--jobs", 2) == first
    page = (tmp_path / "page.html").read_text()
    assert "Time of an iteration" in page
    assert "225 GB/s" in page


def test_a_sweeps_table_has_its_values() -> None:
    text = run(*LLAMA, "--vary", "device.peer_link.out_bandwidth=225e9,450e9")
    assert "225 GB/s" in text
    assert "450 GB/s" in text
    assert "…" not in text


def test_a_device_without_matrix_units_for_bf16_is_slow_but_works(tmp_path: Path) -> None:
    text = (FOLDER / "mi210.toml").read_text()
    path = tmp_path / "plain.toml"
    path.write_text("\n".join(line for line in text.splitlines() if not line.startswith("bf16")))
    slow = document("bert-base", "--device", path)["iteration_ns"]
    assert slow > document("bert-base", "--device", "mi210")["iteration_ns"]
