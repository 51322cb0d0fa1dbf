"""The example of a tensor-parallel MLP: it learns what the whole one does, and says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.torch
def test_it_trains_as_the_whole_model_does():
    """Takes seconds, most of them to import PyTorch in three processes."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "tensor_parallel.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    ours, whole = (
        [float(word) for word in line.partition("losses ")[2].split(", ")]
        for line in done.stdout.splitlines()
    )
    assert ours == pytest.approx(whole, rel=1e-5)
    assert ours == sorted(ours, reverse=True)
    assert len(ours) == 5
    assert done.stdout.startswith("2 ranks, chunked:3: ")
