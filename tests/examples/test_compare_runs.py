from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / "compare_runs.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_demo_prints_both_runs_and_writes_their_page(tmp_path: Path):
    step = EXAMPLES / "overlap_step"
    done = run(
        tmp_path / "demo" / "index.html",
        f"SM kernels={step / 'sm.pt.trace.json.gz'}",
        f"copy engines={step / 'ce.pt.trace.json.gz'}",
    )
    assert done.returncode == 0, done.stderr
    sm, ce = next(line for line in done.stdout.splitlines() if "concurrent" in line).split()[-2:]
    assert float(sm) < 0.4
    assert float(ce) > 0.85
    assert (tmp_path / "demo" / "index.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_what_is_no_run_is_told(tmp_path: Path):
    done = run(tmp_path / "a.html", "no-label.json")
    assert done.returncode == 2
    assert "Give a label and a trace" in done.stderr
