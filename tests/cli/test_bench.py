"""`conccl bench` as users run it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from conccl.cli.main import app
from conccl.core.errors import ConcclError

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "conccl", "bench", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_it_measures_checks_and_tells_how():
    done = run("all_reduce", *"-b 1K -e 64K -f 8 -n 2 -w 1 --format json".split())  # noqa: SIM905
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["schema"] == "conccl.bench/1"
    assert (found["executor"], found["device"], found["error"]) == ("cpu", "cpu", None)
    assert [row["size"] for row in found["results"]] == [1024, 8192, 65536]
    for row in found["results"]:
        assert row["in_place"]["nwrong"] == 0
        assert row["in_place"]["bus_bw"] == pytest.approx(row["size"] / row["in_place"]["time"] / 1e3)
        assert row["how"].startswith("host: ")
    assert "algbw x 2(n-1)/n" in found["busbw_formula"]
    assert [one["rank"] for one in found["devices"]] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("all_gathr", "unknown collective 'all_gathr'. Did you mean all_gather"),
        ("all_gather -b 1M -e 1K", "the first (-b) may not exceed the last (-e)"),
        ("all_gather -b 1X", "'1X' is not a size"),
        ("all_reduce -o median", "unknown reduction 'median'"),
        ("all_reduce -d quarter", "unknown data type 'quarter'"),
        ("broadcast -r 2 --nproc 2", "--root 2 among 2 ranks"),
        ("all_reduce --backend nccl", "takes CUDA tensors only"),
    ],
)
def test_bad_input_is_told_at_once(arguments, words, capsys):
    with pytest.raises(ConcclError) as caught:
        typer.main.get_command(app)(["bench", *arguments.split()], standalone_mode=False)
    assert caught.value.exit_code == 2
    assert words in str(caught.value)
    assert capsys.readouterr().out == ""
