"""`conccl tune`: keys, marks, bad input."""

import json

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app
from conccl.core.errors import InputError, StoreError
from conccl.costs.catalogue import FOLDER

PAIRS = [
    {
        "compute": {"m": 4096, "n": 7168, "k": 8192},
        "communication": {"op": "all_gather", "nbytes": "256M", "ranks": 8},
    },
    {
        "compute": {"m": 16, "n": 7168, "k": 8192},
        "communication": {"op": "copy", "nbytes": "1M", "source": "host"},
    },
]


@pytest.fixture(autouse=True)
def _only_shipped(monkeypatch, tmp_path):
    monkeypatch.setenv("CONCCL_TABLES", str(tmp_path / "tables"))


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(PAIRS))
    return path


def run(*arguments, code: int = 0):
    result = CliRunner().invoke(app, ["tune", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def test_choices_have_a_strategy_a_gain_and_how_sure_they_are(pairs):
    found = json.loads(run("choose", pairs, "--device", "h200-sxm", "--format", "json"))
    assert found["schema"] == "conccl.tune.choose/1"
    assert (found["executor"], found["device"], found["simulated"]) == ("sim", "h200-sxm", True)
    first = found["pairs"][0]
    assert first.keys() == {
        *("compute", "communication", "source", "strategy", "predicted_ns", "serial_ns"),
        *("gain", "confidence", "reason"),
    }
    assert first["gain"] == pytest.approx(1 - first["predicted_ns"] / first["serial_ns"])
    assert "simulated" in run("choose", pairs, "--device", "h200-sxm")


def test_a_models_pairs_are_chosen_for():
    assert "all_gather" in run("choose", "llama3-8b", "--fsdp", "8", "--device", "h200-sxm")


def test_a_pair_that_cannot_be_read_does_not_lose_the_others(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps([*PAIRS, {"compute": 3}]))
    found = json.loads(run("choose", path, "--device", "h200-sxm", "--format", "json", code=2))
    assert len(found["pairs"]) == 2
    assert "pair 2" in found["skipped"][0]["source"]


def test_tables_of_another_version_are_refused(pairs, tmp_path):
    (tmp_path / "t.json").write_text('{"schema": "conccl.tables/9"}')
    with pytest.raises(StoreError, match=r"conccl\.tables/9"):
        run("choose", pairs, "--device", "h200-sxm", "--tables", tmp_path / "t.json")


def test_a_device_without_tables_says_how_to_make_them(pairs, tmp_path):
    device = tmp_path / "mine.toml"
    device.write_text(_toml())
    with pytest.raises(InputError, match="conccl tune tables --device mine"):
        run("choose", pairs, "--device", device)


def _toml() -> str:
    return (FOLDER / "h200-sxm.toml").read_text().replace('name = "h200-sxm"', 'name = "mine"')


def test_an_executor_that_is_not_there_is_named():
    with pytest.raises(InputError, match="executor"):
        run("tables", "--device", "h200-sxm", "--executor", "abacus")


def test_cotuning_says_the_setting_and_what_it_took(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_text(
        json.dumps(
            [PAIRS[0], {"compute": {"op": "add", "numel": 1024}, "communication": PAIRS[1]["communication"]}]
        )
    )
    words = ("cotune", path, "--device", "h200-sxm", "--gpus", 8, "--most", 5)
    found = json.loads(run(*words, "--format", "json", code=2))
    assert found["schema"] == "conccl.tune.cotune/1"
    assert found["pairs"][0]["measured"] == 5
    assert found["pairs"][0]["setting"].keys() == {"communication_sms", "pieces", "tile", "partitioned"}
    assert "Elementwise" in found["skipped"][0]["reason"]
