from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "sample_iterations.py"


@pytest.mark.torch
def test_the_example_records_chooses_runs_the_chosen_and_projects(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), "150"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answer = re.search(r"(\d+) of 150 iterations project (\d+) ms; the whole run took (\d+) ms", done.stdout)
    assert answer is not None
    points, projected, actual = map(int, answer.groups())
    assert points < 50
    assert projected == pytest.approx(actual, rel=0.9)  # times of a machine that may be busy with other tests
    assert len(list((tmp_path / "profiles").glob("length-*.pt.trace.json.gz"))) == points
