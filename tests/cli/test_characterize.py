"""`conccl characterize`: contract, order of strategies, sweeps, resuming, bad input."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app
from conccl.core.errors import InputError, StoreError, UnknownNameError

PAIRS = {
    "pairs": [
        {
            "compute": {"m": 8192, "n": 8192, "k": 8192},
            "communication": {"op": "all_gather", "nbytes": "512M", "ranks": 8},
            "source": "first",
        },
        {
            "compute": {"m": 8192, "n": 28672, "k": 8192},
            "communication": {"op": "all_to_all", "nbytes": "1G", "ranks": 8},
        },
    ]
}


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(PAIRS))
    return path


def run(*arguments, code: int = 0):
    words = ["characterize", *map(str, arguments), "--format", "json"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_keys_are_the_contract(pairs):
    found = run(pairs, "--device", "h200-sxm")
    assert found["schema"] == "conccl.characterize/1"
    assert (found["executor"], found["device"], found["skipped"]) == ("sim", "h200-sxm", [])
    names = [
        "serial",
        "baseline",
        "prioritized",
        "partitioned",
        "prioritized_partitioned",
        "ce",
        "ce_trimmed",
    ]
    assert list(found["average_fraction_of_ideal"]) == names
    first = found["pairs"][0]
    assert first["class"] in ("G-long", "C-long", "GC-equal")
    assert first["source"] == "first"
    for name in names:
        cell = first["strategies"][name]
        assert cell["status"] == "ok"
        assert cell["proved"] is None
        assert cell["concurrent_ns"] > 0
        assert cell["speedup"] == pytest.approx(
            (first["compute_ns"] + first["communication_ns"]) / cell["concurrent_ns"]
        )


def test_strategies_come_out_in_the_order_that_measurements_have(pairs):
    average = run(pairs, "--device", "h200-sxm")["average_fraction_of_ideal"]
    assert average["serial"] == pytest.approx(0, abs=0.01)
    assert average["baseline"] < average["prioritized"] < average["ce"]


def test_a_device_is_varied_and_set(pairs):
    found = run(
        pairs, "--device", "h200-sxm", "--strategies", "ce", "--set", "device.copy_engines.count=1",
        "--vary", "device.copy_engines.bandwidth=50e9,400e9",
    )  # fmt: skip
    slow, fast = found["variations"]
    assert slow["set"] == {"copy_engines.bandwidth": 50e9}
    one, other = (v["pairs"][0]["strategies"]["ce"]["concurrent_ns"] for v in (slow, fast))
    assert one > other


def test_a_sweep_is_kept_and_not_done_twice(pairs, tmp_path):
    folder = tmp_path / "out"
    first = run(pairs, "--device", "h200-sxm", "--output", folder)
    lines = (folder / "store.jsonl").read_text().splitlines()
    assert run(pairs, "--device", "h200-sxm", "--output", folder) == first
    assert (folder / "store.jsonl").read_text().splitlines() == lines
    assert json.loads((folder / "characterize.json").read_text()) == first
    (folder / "store.jsonl").write_text("\n".join(lines[:5]) + "\n" + lines[5][:20])
    assert run(pairs, "--device", "h200-sxm", "--output", folder) == first
    with pytest.raises(StoreError, match="not mixed"):
        run(pairs, "--device", "h200-sxm", "--set", "device.sm_count=100", "--output", folder)


def test_processes_find_what_one_finds(pairs, tmp_path):
    alone = run(pairs, "--device", "h200-sxm")
    assert run(pairs, "--device", "h200-sxm", "--jobs", 2, "--output", tmp_path / "out") == alone


def test_models_have_pairs():
    found = run("llama3-70b", "--fsdp", 8, "--device", "h200-sxm", "--strategies", "baseline,ce")
    assert len(found["pairs"]) > 4
    assert found["average_fraction_of_ideal"]["baseline"] < found["average_fraction_of_ideal"]["ce"]


def test_one_pair_that_cannot_be_does_not_lose_the_others(tmp_path):
    huge = {
        "compute": {"m": 10_000_000, "n": 8192, "k": 8192},
        "communication": {"op": "all_gather", "nbytes": "1M", "ranks": 8},
        "source": "huge",
    }
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps([huge, {"compute": 3}, *PAIRS["pairs"]]))
    found = run(path, "--device", "h200-sxm", "--strategies", "ce", code=2)
    assert len(found["pairs"]) == 2
    reasons = {one["source"]: one["reason"] for one in found["skipped"]}
    assert "too much" in reasons["huge"]
    assert "compute" in reasons["pair 1 of pairs.json"]


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        (("--device", "h2000"), UnknownNameError, "h200-sxm"),
        (("--device", "h200-sxm", "--strategies", "prioritised"), UnknownNameError, "prioritized"),
        (("--device", "h200-sxm", "--executor", "sims"), UnknownNameError, "sim"),
        (("--device", "h200-sxm", "--strategies", " , "), InputError, "no strategies are named.*policy"),
        (("--device", "h200-sxm", "--set", "device.sm_cont=4"), UnknownNameError, "sm_count"),
    ],
)
def test_names_that_do_not_exist_are_answered_with_near_ones(pairs, arguments, kind, says):
    with pytest.raises(kind, match=says):
        run(pairs, *arguments)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([], "lists no pairs"),
        (
            [{"communication": {"op": "copy", "nbytes": 64, "source": "host", "destination": "host"}}],
            "both off",
        ),
        ([{"compute": {"m": 0, "n": 1, "k": 1}}], "m is 0"),
        ([{"compute": {"m": -1, "n": 1, "k": 1}}], "m is -1"),
        ([{"communication": {"op": "all_gather", "nbytes": 0, "ranks": 8}}], "nbytes is 0"),
        ([{"communication": {"op": "all_gather", "nbytes": "1X", "ranks": 8}}], "not a size"),
        ([{"communication": {"op": "all_gatherr", "nbytes": "1M", "ranks": 8}}], "Did you mean all_gather"),
        ([{"communication": {"op": "all_gather", "nbytes": "1M", "ranks": 16}}], "Give --gpus 16"),
        ([{"dependence": "maybe"}], "compute_feeds_communication"),
    ],
)
def test_pairs_that_make_no_sense_are_refused_with_the_reason(tmp_path, entries, reason):
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps([{**PAIRS["pairs"][1], **entry} for entry in entries]))
    words = [sys.executable, "-m", "conccl", "characterize", str(path), "--device", "h200-sxm"]
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": source}
    )
    assert done.returncode == 2
    assert reason in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_pairs_skipped_for_one_reason_are_told_once():
    words = ["characterize", "llama3-8b", "--fsdp", "8", "--device", "h200-sxm", "--gpus", "4"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 2
    assert result.stdout.count("communication among 8 ranks on 4 GPUs") == 1


def test_impossible_partitions_say_which_are_possible(pairs):
    found = run(pairs, "--device", "h200-sxm", "--strategies", "partitioned:12,ce")
    cell = found["pairs"][0]["strategies"]["partitioned:12"]
    assert cell["status"] == "unsupported"
    assert "multiples of 8 from 8 to 128" in cell["reason"]


def test_the_table_names_every_strategy(pairs):
    words = ["characterize", str(pairs), "--device", "h200-sxm", "--strategies", "baseline,ce"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    for word in ("base-", "line", "ce", "all 2 pairs", "median speedup"):
        assert word in result.stdout


def test_the_policy_says_what_it_chose_and_is_the_best_of_what_it_chose_from(pairs):
    found = run(pairs, "--device", "h200-sxm", "--strategies", "policy,ce,nccl_zero,prioritized")
    for pair in found["pairs"]:
        cells = pair["strategies"]
        best_ns = min(cells[name]["concurrent_ns"] for name in ("ce", "nccl_zero", "prioritized"))
        assert cells["policy"]["chosen"] in ("ce", "nccl_zero")
        assert cells["policy"]["concurrent_ns"] == cells[cells["policy"]["chosen"]]["concurrent_ns"]
        assert cells["policy"]["concurrent_ns"] <= 1.02 * best_ns
        assert cells["ce"]["chosen"] is None


@pytest.mark.parametrize(
    ("device", "communication", "reason"),
    [
        ("h200-sxm", {"op": "all_gather", "nbytes": "512M", "ranks": 8}, None),
        ("h200-sxm", {"op": "all_to_all", "nbytes": "512M", "ranks": 8}, None),
        ("h200-sxm", {"op": "all_reduce", "nbytes": "512M", "ranks": 8}, "all_gather, all_to_all, gather"),
        ("h200-sxm", {"op": "all_gather", "nbytes": "512M", "ranks": 16}, "one NVLink domain"),
        ("h200-sxm", {"op": "copy", "nbytes": "64M", "destination": "host"}, "communicates by a copy"),
        ("mi300x", {"op": "all_gather", "nbytes": "512M", "ranks": 8}, "RCCL"),
    ],
)
def test_nccls_copy_engines_only_gather_within_a_domain(tmp_path, device, communication, reason):
    path = tmp_path / "pairs.json"
    path.write_text(
        json.dumps([{"compute": {"m": 8192, "n": 8192, "k": 8192}, "communication": communication}])
    )
    found = run(
        path, "--device", device, "--gpus", communication.get("ranks", 1), "--strategies", "nccl_zero"
    )
    cell = found["pairs"][0]["strategies"]["nccl_zero"]
    assert cell["status"] == ("ok" if reason is None else "unsupported")
    assert (reason or "") in cell["reason"]


def test_dependent_pairs_go_by_chunks_and_fused(tmp_path):
    pair = {
        "compute": {"m": 8192, "n": 8192, "k": 8192},
        "communication": {"op": "all_reduce", "nbytes": "128M", "ranks": 8},
        "dependence": "compute_feeds_communication",
    }
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps([pair]))
    found = run(path, "--device", "h200-sxm", "--strategies", "serial,ce,chunked:4,fused,policy")
    cells = found["pairs"][0]["strategies"]
    assert {cell["status"] for cell in cells.values()} == {"ok"}
    assert cells["fused"]["speedup"] > cells["serial"]["speedup"]


def test_axes_make_a_product_and_the_table_has_a_row_for_each(pairs, tmp_path):
    words = ("--device", "h200-sxm", "--strategies", "baseline,ce", "--vary", "device.copy_engines.count=1,8",
             "--vary", "device.l2_nbytes=25M,50M")  # fmt: skip
    found = run(pairs, *words)
    assert [one["set"] for one in found["variations"]] == [
        {"copy_engines.count": count, "l2_nbytes": size} for count in (1, 8) for size in (25 << 20, 50 << 20)
    ]
    page = tmp_path / "page.html"
    words = ["characterize", str(pairs), *words, "--html", str(page)]
    text = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    assert text.count("25 MiB") == text.count("50 MiB") == 2
    assert "…" not in text
    assert "Average fraction of ideal along the sweep" in page.read_text()


def test_a_killed_sweep_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    many = [
        {
            "compute": {"m": 128 * number, "n": 8192, "k": 8192},
            "communication": {"op": "all_gather", "nbytes": "512M", "ranks": 8},
        }
        for number in range(1, 41)
    ]
    path, folder = tmp_path / "pairs.json", tmp_path / "out"
    path.write_text(json.dumps(many))
    words = ["characterize", str(path), "--device", "h200-sxm", "--output", str(folder)]
    process = subprocess.Popen([sys.executable, "-m", "conccl", *words], stdout=subprocess.DEVNULL)
    store = folder / "store.jsonl"
    until = time.monotonic() + 60
    while (not store.exists() or store.read_text().count("\n") < 20) and time.monotonic() < until:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    before = store.read_text()
    again = run(path, "--device", "h200-sxm", "--output", folder)
    assert store.read_text().startswith(before[: before.rfind("\n") + 1])
    whole = tmp_path / "whole"
    assert again == run(path, "--device", "h200-sxm", "--output", whole)
    assert sorted(store.read_text().splitlines()) == sorted((whole / "store.jsonl").read_text().splitlines())
