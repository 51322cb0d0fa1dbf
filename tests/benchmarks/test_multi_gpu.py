"""The run on several GPUs: steps that end well, fail, hang or cannot be done; the whole dry run (soak)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def step(code: str, **more):
    from multi_gpu.running import Step  # noqa: PLC0415 (found by the fixture)

    given = {"name": "one", "command": (sys.executable, "-c", code), "limit_s": 20.0, **more}
    return Step(**given)


def run(one, folder: Path, *, left_s: float = 60.0):
    from multi_gpu.running import carried_out  # noqa: PLC0415 (found by the fixture)

    return carried_out(one, folder=folder, until=time.monotonic() + left_s)


def test_what_ended_well_is_kept_and_not_run_again(tmp_path: Path):
    counting = step(
        f"import json; f = open({str(tmp_path / 'runs')!r}, 'a'); f.write('x'); print(json.dumps([1]))"
    )
    assert run(counting, tmp_path)["status"] == "ok"
    assert json.loads((tmp_path / "one.json").read_text())["result"] == [1]
    assert run(counting, tmp_path)["status"] == "done before"
    assert (tmp_path / "runs").read_text() == "x"
    other = step(counting.command[2], env={"NCCL_CTA_POLICY": "2"})
    assert run(other, tmp_path)["status"] == "ok"  # another environment is another measurement
    assert (tmp_path / "runs").read_text() == "xx"


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        ("raise ValueError('odd')", "failed", "ValueError: odd"),
        (
            "import sys; print('InputError: no GPU.\\nW12 ended', file=sys.stderr); sys.exit(2)",
            "unavailable",
            "InputError: no GPU.",
        ),
        ("import os; os.kill(os.getpid(), 9)", "failed", "it ended without a word"),
    ],
)
def test_what_fails_is_a_line_with_its_reason_and_run_again(tmp_path: Path, code, status, reason):
    for _ in range(2):
        found = run(step(code), tmp_path)
        assert (found["status"], found["reason"]) == (status, reason)


def test_what_hangs_is_ended_with_its_children_and_keeps_what_it_had(tmp_path: Path):
    result = tmp_path / "half.json"
    child = tmp_path / "child"
    code = (
        f"import subprocess, sys, time; open({str(result)!r}, 'w').write('[1]');"
        f"p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)']);"
        f"open({str(child)!r}, 'w').write(str(p.pid)); time.sleep(99)"
    )
    found = run(step(code, limit_s=1.5, result=result), tmp_path)
    assert (found["status"], found["result"]) == ("timed out", [1])
    stat = Path(f"/proc/{child.read_text()}/stat")
    assert not stat.exists() or stat.read_text().split()[2] in "ZX"


def test_a_run_goes_on_where_its_files_were_copied_to(tmp_path: Path):
    from multi_gpu.running import is_done  # noqa: PLC0415 (found by the fixture)
    from multi_gpu.steps import steps  # noqa: PLC0415 (found by the fixture)

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    before, after = (steps(tmp_path / one, gpus=2, device="h200-sxm", dry=False) for one in "ab")
    for one in before:
        saved = {"status": "ok", "command": ["/another/python", *one.command[1:]], "env": one.env}
        (tmp_path / "b" / f"{one.name}.json").write_text(json.dumps(saved))
    assert [one.name for one in after if not is_done(one, tmp_path / "b")] == ["compared"]
    others = steps(tmp_path / "b", gpus=4, device="h200-sxm", dry=False)
    assert [one.name for one in others if is_done(one, tmp_path / "b")] == ["doctor"]


def test_without_time_nothing_is_begun(tmp_path: Path):
    assert run(step("print(1)"), tmp_path, left_s=0)["status"] == "not begun"
    assert not (tmp_path / "one.json").exists()


def test_lines_of_nccl_are_the_proof(tmp_path: Path):
    (tmp_path / "nccl.1.log").write_text(
        "host:1 NCCL INFO NCCL version 2.28.9+cuda13.0\nhost:1 NCCL INFO x\n"
    )
    assert run(step("print(1)", logs="nccl.*.log"), tmp_path)["proof"] == ["NCCL version 2.28.9+cuda13.0"]


def test_real_steps_fit_two_gpus_keep_multicast_off_and_have_30_pairs(tmp_path: Path):
    from multi_gpu.steps import steps  # noqa: PLC0415 (found by the fixture)
    from multi_gpu.summary import write_summary  # noqa: PLC0415 (found by the fixture)

    planned = steps(tmp_path, gpus=2, device="h200-sxm", dry=False)
    assert len({one.name for one in planned}) == len(planned)
    for one in planned:
        assert one.env["NCCL_NVLS_ENABLE"] == "0"
        assert one.env["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == "1"
        assert one.limit_s <= 200
    pairs = json.loads((tmp_path / "pairs.json").read_text())["pairs"]
    assert len(pairs) == 30
    assert {one["communication"]["ranks"] for one in pairs} == {2}
    write_summary(tmp_path, planned)
    assert (tmp_path / "summary.md").read_text().count("| not run |") == len(planned)


@pytest.mark.torch
@pytest.mark.soak
def test_the_dry_run_takes_all_steps_in_a_minute_and_goes_on(tmp_path: Path):
    pytest.importorskip("torch")
    command = [sys.executable, str(BENCHMARKS / "multi_gpu.py"), "--output", str(tmp_path), "--dry-run"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=os.environ)
    assert time.monotonic() - began < 120
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert len(lines) == 13
    refused = lines.pop("fsdp-gloo-symmetric")
    assert "unavailable" in refused
    assert "needs GPUs" in refused
    assert all(line.split()[1] == "ok" for line in lines.values()), done.stdout
    stock, ours = (
        json.loads((tmp_path / f"fsdp-gloo-{part}.json").read_text())["result"]
        for part in ("stock", "conccl")
    )
    assert stock["losses"] == pytest.approx(ours["losses"], rel=1e-5)
    assert "cannot be read" not in (tmp_path / "summary.md").read_text()
    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100, env=os.environ)
    assert again.stdout.count("done before") == 11
