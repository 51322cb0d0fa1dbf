"""`conccl compare`: exit codes, keys, names of cells."""

import json

from typer.testing import CliRunner

from conccl.cli.main import app

PAIR = {
    "compute": {"m": 2048, "n": 4096, "k": 4096},
    "communication": {"op": "copy", "nbytes": "8M", "source": "host"},
}


def run(*arguments, code: int = 0):
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def characterized(tmp_path, name, *more):
    (tmp_path / "pairs.json").write_text(json.dumps([PAIR]))
    folder = tmp_path / name
    run(
        "characterize",
        tmp_path / "pairs.json",
        "--device",
        "h200-sxm",
        "--strategies",
        "serial,ce",
        "--output",
        folder,
        *more,
    )
    return folder


def test_a_slower_machine_is_exit_code_1_and_cells_have_names(tmp_path):
    a = characterized(tmp_path, "a")
    b = characterized(tmp_path, "b", "--set", "device.host_link.out_bandwidth=32e9")
    assert "3 SAME" not in run("compare", a, b, code=1)
    found = json.loads(run("compare", a, b, "--format", "json", code=1))
    assert found["schema"] == "conccl.compare/1"
    assert found["a"]["device"] == found["device"] == "h200-sxm"
    slower = [cell for cell in found["cells"] if cell["verdict"] == "SLOWER"]
    assert slower
    assert slower[0].keys() == {"cell", "what", "a_ns", "b_ns", "change", "noise", "verdict"}
    assert "2048x4096x4096" in slower[0]["what"]
    assert found["counts"]["FASTER"] == 0
    assert "SLOWER" in run("compare", a, b, code=1)


def test_the_same_twice_is_exit_code_0(tmp_path):
    a = characterized(tmp_path, "a")
    out = run("compare", a, a / "store.jsonl", "--all")
    assert "4 SAME" in out
