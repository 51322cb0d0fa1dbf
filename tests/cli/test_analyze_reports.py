from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app

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
def test_a_target_that_cannot_be_written_is_told(option: str, tmp_path: Path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["analyze", str(EXAMPLE), option, str(tmp_path / "file" / "below")])
    assert type(result.exception).__name__ == "OutputError"
    assert "Give a path of a file in a folder that you may write to" in str(result.exception)
