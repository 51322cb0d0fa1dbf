"""`conccl sample intervals`: its contract, and what is said of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app
from conccl.cli.sample_intervals import parse_instructions
from conccl.core.errors import InputError
from phased_program import compiled, require


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cli-cache"))


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["sample", "intervals", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_document(binary: Path, tmp_path: Path) -> None:
    require("qemu-x86_64")
    out = tmp_path / "points"
    document = json.loads(
        run("--method", "simpoint", "--interval", "5M", "--output", out, "--format", "json", "--", binary, 2)
    )
    assert document["schema"] == "conccl.sample.intervals/1"
    assert document["executor"] == "sim"
    assert sum(point["weight"] for point in document["points"]) == pytest.approx(1)
    assert len(document["phases"]) == len(document["shares"]) == document["intervals"]
    assert document["projected"]["cycles"] > document["projected"]["instructions"] > 100_000_000
    assert json.loads((out / "points.json").read_text()) == document
    assert {file.name for file in out.iterdir()} == {
        "points.json", "points.simpoints", "points.weights", "program.bb",
    }  # fmt: skip


def test_the_table(binary: Path) -> None:
    text = run("--points-only", "--interval", "5M", "--", binary, 2)
    assert "intervals stand for the run of phases" in text
    assert "%" in text
    assert "kept" in text


def test_options_behind_the_program_are_its_own(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--format"):
        run("--points-only", "--", "ls", "--format=what")


@pytest.mark.parametrize(
    ("text", "instructions"),
    [("500000", 500_000), ("10M", 10_000_000), ("0.1g", 100_000_000), ("2_000K", 2_000_000)],
)
def test_instructions(text: str, instructions: int) -> None:
    assert parse_instructions(text) == instructions


@pytest.mark.parametrize("text", ["", "M", "ten", "nan", "inf", "1e999", "10T"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(InputError, match="Give instructions"):
        parse_instructions(text)


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(InputError, match="was not found"):
        run("--", "no-such-program")


def test_vectors_instead_of_a_program() -> None:
    path = Path(__file__).parents[2] / "examples" / "simulation_points" / "phases.bb.gz"
    document = json.loads(run("--vectors", path, "--format", "json"))
    assert document["program"] is None
    assert document["projected"] is None
    assert [point["interval"] for point in document["points"]] == [1, 7, 26, 52]
    with pytest.raises(InputError, match="Give one of them"):
        run("--vectors", path, "--", "true")


def test_a_page_shows_phases_over_time(tmp_path: Path) -> None:
    vectors = Path(__file__).parents[2] / "examples" / "simulation_points" / "phases.bb.gz"
    page = tmp_path / "page.html"
    run("--vectors", vectors, "--html", page)
    text = page.read_text(encoding="utf-8")
    assert "Phases over time" in text
    assert "interval 26 stands for 37.0 % of the run" in text
