"""Pipes, devices and folders in place of input files: refused at once, for reading them may never end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app
from conccl.core.errors import ConcclError
from made_kineto import kernel, text_of

COMMANDS = {
    "trace": (["analyze", "{}"], ".json"),
    "rules": (["analyze", "good.json", "--rules", "{}"], ".toml"),
    "device": (["analyze", "good.json", "--device", "{}"], ".toml"),
    "rows": (["predict", "{}", "--device", "h200-sxm"], ".json"),
    "lengths": (["sample", "iterations", "{}", "--stat", "good.csv"], ".csv"),
    "lines": (["sample", "iterations", "{}", "--stat", "good.csv"], ".jsonl"),
    "kernels": (["sample", "kernels", "{}"], ".json"),
    "pairs": (["characterize", "{}", "--device", "h200-sxm", "--executor", "sim"], ".json"),
    "model": (["simulate", "{}", "--device", "h200-sxm"], ".json"),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_may_never_end_is_refused(
    command: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, ending = COMMANDS[command]
    monkeypatch.chdir(tmp_path)
    Path("good.json").write_bytes(text_of([kernel("gemm", 1, 2)]))
    Path("good.csv").write_text("length,time_ms\n1,2\n")
    path = Path(f"odd{ending}")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    result = CliRunner().invoke(app, [word.format(path) for word in words])
    assert result.exit_code == 2 or isinstance(result.exception, ConcclError), result.output
    if kind != "folder" and isinstance(result.exception, ConcclError):
        assert "pipe or device" in str(result.exception)
