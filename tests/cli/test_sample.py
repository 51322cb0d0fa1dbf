"""`conccl sample`: contracts, and what is said of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app
from conccl.core.errors import InputError, OutputError, TraceError
from conccl.report.names import shown
from made_kineto import kernel, text_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "overlap_step" / "ce.pt.trace.json.gz"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    rows = [f"{i},{8 * (1 + i * i % 40)}" for i in range(400)]
    path.write_text("iteration,length\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def stat(tmp_path: Path) -> Path:
    path = tmp_path / "stat.csv"
    rows = [f"{8 * n},{1 + 0.1 * n},{10 + n}" for n in range(1, 41)]
    path.write_text("length,time_ms,kernels\n" + "\n".join(rows) + "\n")
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["sample", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_iterations_as_json(log: Path, stat: Path) -> None:
    document = json.loads(run("iterations", log, "--stat", stat, "--error", 0.5, "--format", "json"))
    assert document["schema"] == "conccl.sample.iterations/1"
    assert sum(point["weight"] for point in document["seqpoints"]) == 400
    assert set(document["seqpoints"][0]) == {"length", "iteration", "weight"}
    assert document["error_percent"] <= 0.5
    assert document["projected"] == pytest.approx(document["actual"], rel=0.005)
    assert {p["statistic"] for p in document["projections"]} == {"time_ms", "kernels"}


def test_iterations_as_a_table_with_other_rules(log: Path, stat: Path) -> None:
    text = run("iterations", log, "--stat", stat, "--baselines")
    assert "400 iterations stand for the run" in text
    assert "frequent" in text


def test_iterations_by_another_statistic(log: Path, stat: Path) -> None:
    document = json.loads(run("iterations", log, "--stat", stat, "--by", "kernels", "--format", "json"))
    assert document["statistic"] == "kernels"


def test_kernels_as_json() -> None:
    document = json.loads(run("kernels", EXAMPLE, "--most", 20, "--format", "json"))
    assert document["schema"] == "conccl.sample.kernels/1"
    assert document["executor"] == "trace"
    assert len(document["kernels"]) <= 20
    assert sum(kernel["weight"] for kernel in document["kernels"]) == document["of"]
    assert document["error_percent"] < 1


def test_kernels_as_a_table() -> None:
    assert "95 % interval" in run("kernels", EXAMPLE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["iterations", "{log}"], "no statistic"),
        (["iterations", "{log}", "--stat", "{stat}", "--by", "tim"], "Did you mean time_ms"),
        (["iterations", "missing.csv"], "cannot read"),
        (["iterations", "{negative}"], "iteration 1: time_ms is -2. What is projected is never negative"),
        (["iterations", "{log}", "--stat", "{stat}", "--by", ""], "unknown statistic ''"),
        (["kernels", "{example}", "--rank", "7"], "no rank 7"),
        (["kernels", "{example}", "--most", "0"], "give 1 or more"),
    ],
)
def test_bad_input_is_explained(log: Path, stat: Path, arguments: list[str], message: str) -> None:
    negative = log.with_name("negative.csv")
    negative.write_text("length,time_ms\n5,1\n6,-2\n")
    given = [a.format(log=log, stat=stat, example=EXAMPLE, negative=negative) for a in arguments]
    with pytest.raises(InputError, match=message) as error:
        CliRunner().invoke(app, ["sample", *given], catch_exceptions=False)
    assert error.value.exit_code == 2


def test_no_trace_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        CliRunner().invoke(app, ["sample", "kernels", str(tmp_path)], catch_exceptions=False)


def test_ranks_are_those_of_analyze_and_bad_files_lose_no_other(tmp_path: Path) -> None:
    """The file of rank 0 is broken; that of rank 1 breaks off and holds a second GPU, which is rank 2."""
    (tmp_path / "rank-0.json").write_text("no trace")
    events = [kernel("a", 1, 5), kernel("a", 9, 5), kernel("b", 1, 7, device=1)]
    (tmp_path / "rank-1.json").write_bytes(text_of(events)[:-3])
    for arguments, duration_ns in (([], 10_000), (["--rank", "1"], 10_000), (["--rank", "2"], 7_000)):
        result = CliRunner().invoke(app, ["sample", "kernels", str(tmp_path), "--format", "json", *arguments])
        assert json.loads(result.stdout)["actual_ns"] == duration_ns
        assert "what came before was read" in result.stderr
        told = "rank-0.json (byte 0): not JSON" in result.stderr
        assert result.exit_code == (2 if told else 0)
        assert told == (arguments != ["--rank", "1"])
    with pytest.raises(TraceError, match="not JSON"):
        CliRunner().invoke(app, ["sample", "kernels", str(tmp_path), "--rank", "0"], catch_exceptions=False)


WORK = """
import torch

def train(*layers):
    weights = [torch.zeros(512, 512, requires_grad=True) for _ in range(int(layers[0]))]
    given = torch.zeros(4096, 512)
    def step():
        x = given
        for weight in weights:
            x = torch.relu(x @ weight)
        x.sum().backward()
    return step

def nothing():
    return lambda: None
"""


def test_pages(log: Path, stat: Path, tmp_path: Path) -> None:
    for arguments in (["iterations", log, "--stat", stat], ["kernels", EXAMPLE, "--most", 20]):
        page = tmp_path / arguments[0] / "page.html"
        run(*arguments, "--html", page)
        text = page.read_text()
        assert text.startswith("<!doctype html>")
        assert '<g class="chosen">' in text
        assert "Error against number of" in text
    with pytest.raises(OutputError, match="cannot write"):
        run("iterations", log, "--stat", stat, "--html", log / "page.html")


@pytest.mark.torch
def test_kernels_of_a_simulated_step_and_what_they_say_of_other_devices(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "work.py").write_text(WORK)
    target, on = f"{tmp_path / 'work.py'}:train", ("--device", "h200-sxm,a100-sxm")
    document = json.loads(run("kernels", target, *on, "--whole", "--format", "json", "--", "40"))
    assert document["executor"] == "sim"
    assert document["device"] == "h200-sxm"
    here, there = document["scaled"]
    assert (here["device"], there["device"]) == ("h200-sxm", "a100-sxm")
    assert here["actual_ns"] == document["actual_ns"]
    assert max(here["error_percent"], there["error_percent"]) < 2
    assert len(document["kernels"]) < document["of"] / 10
    assert "from the chosen" in run("kernels", target, *on, "--", "8")
    for arguments, message in (
        ([f"{tmp_path / 'work.py'}:nothing", *on], "launches no kernels"),
        ([target], "code needs a device"),
        ([str(EXAMPLE), *on], "are for code"),
    ):
        with pytest.raises(InputError, match=message):
            run("kernels", *arguments)


def test_kernels_of_a_simulated_run_written_as_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "run.json"
    made = ["simulate", "llama3-8b", "--fsdp", "8", "--device", "h200-sxm", "--perfetto", str(trace)]
    assert CliRunner().invoke(app, made, catch_exceptions=False).exit_code == 0
    document = json.loads(run("kernels", trace, "--most", "20", "--format", "json"))
    assert document["error_percent"] < 1


@pytest.mark.parametrize("name", ["[red]a[/nope]", "a\x1b[31mb", "[/]", "\u202ea"])
def test_names_in_tables_are_inert(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.json").write_bytes(text_of([kernel(name, 1, 5)]))
    (tmp_path / "log.csv").write_text(f"length,{name}\n1,2\n")
    for arguments in (["kernels", tmp_path / "a.json"], ["iterations", tmp_path / "log.csv", "--baselines"]):
        table = run(*arguments)
        assert shown(name) in table
        assert not {"\x1b", "\u202e"} & set(table)
