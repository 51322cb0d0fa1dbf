"""Results go to standard output alone, whatever becomes of it; messages to standard error, inert."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from made_kineto import kernel, text_of

EVENTS = [
    kernel("gemm", 10, 5, correlation=1),
    kernel("ncclDevKernel_AllReduce", 12, 8, stream=9, correlation=2),
    kernel("noyau é…\u4e16", 30, 5, correlation=3),
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "rank-0.json"
    path.write_bytes(text_of(EVENTS))
    return path


def conccl(*arguments: str | Path, shell: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, with what a shell would write behind it."""
    words = " ".join(f"'{word}'" for word in (sys.executable, "-m", "conccl", *arguments))
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} {shell}"],
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_reader_that_has_gone_has_read_enough(trace: Path, tmp_path: Path, form: str) -> None:
    page = tmp_path / "a.html"
    done = conccl("analyze", trace, "--format", form, "--html", page, shell="| true")
    assert (done.returncode, done.stderr) == (0, f"wrote {page}\n".encode())
    assert page.stat().st_size > 1000


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("shell", [">/dev/full", ">&-"])
def test_output_that_cannot_be_written_is_told(trace: Path, form: str, shell: str) -> None:
    done = conccl("analyze", trace, "--format", form, shell=shell)
    assert done.returncode == 2
    assert b"standard output" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "utf-8:strict"])
def test_any_encoding_will_do(trace: Path, encoding: str) -> None:
    table = conccl("analyze", trace, PYTHONIOENCODING=encoding)
    assert (table.returncode, table.stderr) == (0, b"")
    document = conccl("analyze", trace, "--format", "json", PYTHONIOENCODING=encoding)
    assert json.loads(document.stdout)["unclassified"][0]["name"] == EVENTS[2]["name"]


def test_messages_from_names_of_files_are_inert(tmp_path: Path) -> None:
    (tmp_path / "rank-0.json").write_bytes(text_of(EVENTS))
    (tmp_path / "\x1b[31mrank-1.json").write_bytes(b"no trace")
    odd = os.fsencode(tmp_path) + b"/\xff.json"
    Path(os.fsdecode(odd)).write_bytes(b"no trace")
    done = conccl("analyze", tmp_path, "--format", "json", PYTHONIOENCODING="utf-8:strict")
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert rb"\x1b[31mrank-1.json" in done.stderr
    assert len(json.loads(done.stdout)["problems"]) == 2


def test_without_standard_error_the_result_is_the_same(trace: Path) -> None:
    done = conccl("analyze", trace, "--format", "json", shell="2>&-")
    assert done.returncode == 0
    assert json.loads(done.stdout)["ranks"][0]["rank"] == 0
