"""Ten minutes of coverage-guided fuzzing of the trace reader (CONCCL_FUZZ_SECONDS changes that)."""

from __future__ import annotations

import gzip
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odd_traces import LAID_OUT, SEED

SECONDS = int(os.environ.get("CONCCL_FUZZ_SECONDS", "600"))


@pytest.mark.soak
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.timeout(SECONDS + 600)
def test_only_our_own_errors_come_out(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name, seed in {
        "plain": b"P" + SEED,
        "packed": b"Z" + SEED,
        "gzip": b"P" + gzip.compress(SEED),
        "archive": b"A" + SEED,
        "blocks": b"K" + LAID_OUT,
    }.items():
        (corpus / name).write_bytes(seed)
    script = Path(__file__).with_name("fuzz_reader.py")
    limits = [f"-max_total_time={SECONDS}", "-max_len=8192", "-timeout=30", "-rss_limit_mb=2048"]
    done = subprocess.run(
        [sys.executable, str(script), str(corpus), f"-artifact_prefix={tmp_path}/", *limits],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
