"""A step is a process with a time limit; what came of it is a file at once."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REFUSED = 2
"""Exit code of what cannot be done here."""

GRACE_S = 3.0
"""From the request to end to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command, what it may take, and where its result is."""

    name: str
    command: tuple[str, ...]
    limit_s: float
    env: dict[str, str] = field(default_factory=dict)
    result: Path | None = None
    """A JSON file that it writes, bit by bit; None: what it prints."""
    logs: str = ""
    """Pattern of files in the output folder whose lines show what ran."""
    reads_others: bool = False
    """Whether it reads what other steps wrote, which may be more by now: it is always run again."""
    note: str = ""
    """What a reader must know of its figures."""


def carried_out(step: Step, /, *, folder: Path, until: float) -> dict[str, Any]:
    """What came of a step; not run again where the same command has ended well before."""
    path = folder / f"{step.name}.json"
    if is_done(step, folder):
        return {**json.loads(path.read_text()), "status": "done before"}
    left = until - time.monotonic()
    if left < 1:
        late = {"status": "not begun", "seconds": 0.0, "reason": "no time left; the same command goes on"}
        return {**outcome_of(step), **late}
    outcome = _run(step, folder=folder, seconds=min(step.limit_s, left))
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(outcome, indent=1) + "\n")
    beside.replace(path)
    return outcome


def is_done(step: Step, folder: Path, /) -> bool:
    """Whether the same command in the same environment has ended well."""
    found = saved(step, folder)
    return bool(
        found
        and not step.reads_others
        and found["status"] == "ok"
        and _same(found["command"][1:]) == _same(step.command[1:])
        and _same(found["env"].values()) == _same(step.env.values())
        and found["env"].keys() == step.env.keys()
    )


def _same(words: Iterable[str]) -> list[str]:
    """Without folders: a run may go on where its files have been copied to."""
    return [word.rpartition("/")[2] for word in words]


def saved(step: Step, folder: Path, /) -> dict[str, Any] | None:
    """What is on file of a step; None where nothing is, or nothing that can be read."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((folder / f"{step.name}.json").read_text())
        return found if isinstance(found, dict) and "status" in found else None
    return None


def outcome_of(step: Step, /) -> dict[str, Any]:
    """What a step is, before anything came of it."""
    return {
        "schema": "conccl.multi_gpu/1",
        "name": step.name,
        "command": list(step.command),
        "env": step.env,
        "note": step.note,
        "host": platform.node(),
        "began": datetime.now(UTC).isoformat(),
    }


def _run(step: Step, *, folder: Path, seconds: float) -> dict[str, Any]:
    about = outcome_of(step)
    if step.result:
        step.result.unlink(missing_ok=True)
    began = time.monotonic()
    status, code = "ok", None
    out_path, err_path = folder / f"{step.name}.out", folder / f"{step.name}.err"
    with out_path.open("wb") as out, err_path.open("wb") as err:
        process = subprocess.Popen(
            step.command, stdout=out, stderr=err, env={**os.environ, **step.env}, start_new_session=True
        )
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            status = "timed out"
        finally:
            _end(process)  # its ranks too: one that is left would hold a GPU
    said = err_path.read_text(errors="replace").strip()
    if code is not None and code != 0:
        status = "unavailable" if code == REFUSED else "failed"
    reason = "" if status == "ok" else f"{seconds:.0f} s were not enough" if code is None else _last(said)
    printed = out_path.read_text(errors="replace")
    out_path.unlink()
    result = _json(step.result) if step.result else _json(out_path, printed)
    if status == "unavailable" and result is not None and step.result is not None:
        status = "partly"  # some of it was refused, the rest is there
    return {
        **about,
        "status": status,
        "reason": reason,
        "exit_code": code,
        "seconds": round(time.monotonic() - began, 2),
        "result": result,
        "printed": "" if result else printed[-4000:],
        "errors": said[-4000:],
        "proof": _lines_of(step, folder),
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    for what in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, what)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_S)


def _last(said: str) -> str:
    """The line that tells most: an error by its name, else the last one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|conccl): ", line)]
    return (named or lines or ["it ended without a word"])[-1][:300]


def _json(path: Path, text: str | None = None) -> Any:
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text() if text is None else text)
    return None


def _lines_of(step: Step, folder: Path) -> list[str]:
    """Lines of NCCL's logs about its version, environment and channels; each once."""
    wanted = ("NCCL version", "set by environment", "NVLS", "coll channels", "CTA", "CE coll")
    found: dict[str, None] = {}
    for path in sorted(folder.glob(step.logs)) if step.logs else ():
        for line in path.read_text(errors="replace").splitlines():
            if any(word in line for word in wanted):
                found[line.partition("NCCL INFO ")[2] or line] = None
        path.unlink()
    return list(found)[:40]
