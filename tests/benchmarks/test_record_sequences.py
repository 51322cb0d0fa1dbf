"""The recorder of the measured sequence runs, on a CPU with small networks: it stops in time and goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "sample_iterations" / "record.py"
LOGS = {
    "librispeech_dev_clean_durations.csv": ("duration_s", ["2.5", "4", "7.25"]),
    "opennmt_wmt_sample_en_de_token_lengths.csv": ("src_tokens,tgt_tokens", ["16,20", "33,40"]),
    "AzureLLMInferenceTrace_conv.csv": ("ContextTokens,GeneratedTokens", ["300,40", "900,20"]),
}


def record(lengths: Path, output: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--lengths", str(lengths), "--output", str(output)]
    return subprocess.run(
        [*command, "--iterations", "4", "--device", "cpu", "--tiny", *more],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.torch
def test_a_run_that_is_cut_off_goes_on_until_it_is_complete(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for name, (header, rows) in LOGS.items():
        (tmp_path / name).write_text("\n".join([header, *rows]) + "\n")
    output = tmp_path / "runs"
    cut = record(tmp_path, output, "--networks", "speech", "--seconds", "0")
    assert cut.returncode == 3, cut.stderr
    assert "speech: 4 of first_ms, 4 of second_ms, 4 of half_ms" in cut.stdout
    whole = record(tmp_path, output)
    assert whole.returncode == 0, whole.stderr
    assert whole.stdout.split("\n")[:3] == [
        f"{n}: complete" for n in ("speech", "translation", "transformer")
    ]
    for name, dimensions in (("speech", 1), ("translation", 2), ("transformer", 1)):
        found = dict(np.load(output / f"{name}.npz"))
        assert found["length"].shape == (4, dimensions)
        assert all((found[f"{run}_ms"] > 0).all() for run in ("first", "second", "half"))
