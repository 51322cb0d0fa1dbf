"""`conccl tune gemms`: keys, library, resuming, bad input."""

import json

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app
from conccl.core.errors import InputError
from conccl.tune.gemms.library import load

SETS = [
    {"name": "qkv", "gemms": [[256, 1024, 1024]] * 3},
    {"name": "large", "dtype": "fp16", "gemms": [[8192, 8192, 1024], [64, 512, 512]]},
]


@pytest.fixture
def sets(tmp_path):
    path = tmp_path / "sets.json"
    path.write_text(json.dumps(SETS))
    return path


def run(*arguments, code: int = 0):
    result = CliRunner().invoke(app, ["tune", "gemms", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def test_keys(sets):
    document = json.loads(run(sets, "--device", "h200-sxm", "--format", "json").stdout)
    assert document["schema"] == "conccl.tune-gemms/1"
    assert (document["executor"], document["device"]) == ("sim", "h200-sxm")
    first = document["sets"][0]
    assert first["best_ns"] <= min(first["sequential_ns"], first["default_ns"])
    assert len(first["best"]["kernels"]) == 3
    assert document["geomean_over_sequential"] >= 1


def test_every_row_fits_into_80_columns(sets, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(sets, "--device", "mi300x").stdout.splitlines()
    assert any(line.startswith("qkv") for line in lines)
    assert not any("…" in line or len(line.rstrip()) > 80 for line in lines)


def test_a_library_is_written_and_says_that_it_is_predicted(sets, tmp_path):
    path = tmp_path / "h200.json"
    arguments = (sets, "--device", "h200-sxm", "--corpus", "8", "--library", path)
    result = run(*arguments, "--store", tmp_path / "kept.jsonl")
    assert "predicted" in result.stderr
    assert load(path).environment.executor == "sim"
    before = (tmp_path / "kept.jsonl").read_text()
    run(*arguments, "--store", tmp_path / "kept.jsonl")
    assert (tmp_path / "kept.jsonl").read_text() == before


@pytest.mark.parametrize("option", [("--busy-sms", "132"), ("--busy-sms", "-1"), ("--corpus", "-1")])
def test_numbers_out_of_range_are_refused(sets, option):
    with pytest.raises(InputError, match=option[0]):
        run(sets, "--device", "h200-sxm", *option)
