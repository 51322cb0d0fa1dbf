from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEMO), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_demo_compares_recordings_and_characterizes_a_layer_on_one_page(tmp_path: Path):
    done = run(tmp_path / "demo" / "index.html")
    assert done.returncode == 0, done.stderr
    sm, ce = next(line for line in done.stdout.splitlines() if "concurrent" in line).split()[-2:]
    assert float(sm) < 0.4
    assert float(ce) > 0.85
    assert "on 8 x h200-sxm, sim" in done.stdout
    assert done.stdout.splitlines()[-1] == f"The page: {tmp_path / 'demo' / 'index.html'}"
    text = (tmp_path / "demo" / "index.html").read_text(encoding="utf-8")
    assert '<section id="timeline"' in text
    assert '<section id="strategies"' in text


def test_a_page_that_cannot_be_written_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = run(tmp_path / "file" / "index.html")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
