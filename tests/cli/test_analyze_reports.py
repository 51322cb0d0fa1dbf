from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app
from made_kineto import kernel, text_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "overlap_step" / "ce.pt.trace.json.gz"


def run(*arguments: str | Path) -> int:
    return CliRunner().invoke(app, ["analyze", str(EXAMPLE), *map(str, arguments)]).exit_code


def test_one_analysis_in_every_form(tmp_path: Path):
    code = run(
        *("--html", tmp_path / "a.html"),
        *("--perfetto", tmp_path / "new" / "a.json"),
        *("--csv", tmp_path / "tables"),
    )
    assert code == 0
    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    events = json.loads((tmp_path / "new" / "a.json").read_bytes())["traceEvents"]
    assert {"kernel", "gpu_memcpy", "overlap"} <= {event.get("cat") for event in events}
    with (tmp_path / "tables" / "ranks.csv").open(encoding="utf-8") as file:
        assert [row["device_name"] for row in csv.DictReader(file)] == ["NVIDIA H200"]


@pytest.mark.parametrize("option", ["--html", "--perfetto", "--csv"])
def test_a_target_that_cannot_be_written_is_told_and_the_others_are_written(option: str, tmp_path: Path):
    (tmp_path / "file").write_text("")
    targets = {
        "--html": tmp_path / "a.html",
        "--perfetto": tmp_path / "a.json",
        "--csv": tmp_path / "tables" / "ranks.csv",
    }
    options = {name: path.parent if name == "--csv" else path for name, path in targets.items()}
    options[option] = tmp_path / "file" / "below"
    result = CliRunner().invoke(app, ["analyze", str(EXAMPLE), *_flat(options)])
    assert result.exit_code == 2
    assert "conccl: error: cannot write" in result.stderr
    assert "Give a path of a file in a folder that you may write to" in result.stderr
    assert "Where time goes" in result.stdout
    assert [name for name, path in targets.items() if not path.exists()] == [option]


def _flat(options: dict[str, Path]) -> list[str]:
    return [str(part) for pair in options.items() for part in pair]


def test_a_forgotten_value_costs_no_trace(tmp_path: Path):
    """As where a shell makes ``--html traces/*`` the names of all traces."""
    trace = tmp_path / "rank-0.json.gz"
    trace.write_bytes(EXAMPLE.read_bytes())
    for option, message in (("--html", "has the name of a trace"), ("--perfetto", "not of conccl's making")):
        result = CliRunner().invoke(app, ["analyze", option, str(trace), str(EXAMPLE)])
        assert message in str(result.exception)
        assert trace.read_bytes() == EXAMPLE.read_bytes()


def test_what_was_written_for_perfetto_is_replaced_and_is_no_further_rank(tmp_path: Path):
    (tmp_path / "rank-0.json.gz").write_bytes(EXAMPLE.read_bytes())
    arguments = ["analyze", str(tmp_path), "--perfetto", str(tmp_path / "a.json"), "--format", "json"]
    first, second = (CliRunner().invoke(app, arguments) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert json.loads(first.stdout) == json.loads(second.stdout)
    alone = json.loads(
        CliRunner().invoke(app, ["analyze", str(tmp_path / "a.json"), "--format", "json"]).stdout
    )
    assert alone["ranks"][0]["span_ns"] == json.loads(first.stdout)["ranks"][0]["span_ns"]


def test_ranks_survive_the_way_through_perfetto(tmp_path: Path):
    """The busiest GPU of a file without a rank is not its first one, and rank 10 not the one behind 1."""
    for rank in range(12):
        events = [kernel("gemm", at, 1 + rank) for at in range(100, 100 + 100 * (1 + rank % 5), 100)]
        text = text_of(events, distributedInfo={"rank": rank, "world_size": 12})
        (tmp_path / f"{rank}.json").write_bytes(text)
    page = tmp_path / "out" / "a.json"
    before = json.loads(_json_of(tmp_path, "--perfetto", page))["ranks"]
    after = json.loads(_json_of(page))["ranks"]
    assert [(each["rank"], each["span_ns"]) for each in after] == [
        (each["rank"], each["span_ns"]) for each in before
    ]


def _json_of(*arguments: str | Path) -> str:
    return CliRunner().invoke(app, ["analyze", *map(str, arguments), "--format", "json"]).stdout
