"""valgrind's exp-bbv: basic-block vectors the slow way, as a reference."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from conccl.core.errors import InputError
from conccl.sampling.intervals.program import Child, Program, require_one_thread
from conccl.sampling.intervals.translate.qemu import BlockProfile


def find_valgrind() -> str:
    """The translator's path."""
    found = shutil.which("valgrind")
    if found is None:
        raise InputError("valgrind was not found. Install it (Debian, Ubuntu: apt install valgrind).")
    return found


def profile_blocks(program: Program, /, *, interval: int, keep: Path) -> BlockProfile:
    """Run the program under exp-bbv; the vectors are kept in `keep`. It knows no markers."""
    with tempfile.TemporaryDirectory(prefix="conccl-valgrind-") as folder:
        made = Path(folder) / "bb"
        log = Path(folder) / "log"
        command = [
            find_valgrind(),
            "--tool=exp-bbv",
            f"--interval-size={interval}",
            f"--bb-out-file={made}",
            f"--pc-out-file={folder}/pc",
            f"--log-file={log}",
            *program.argv,
        ]
        with Child(command, program=program, environment=program.environment()) as child:
            ended = child.wait()
        require_one_thread(program, more=len(list(Path(folder).glob("bb.*"))))
        intervals, instructions = _totals(made)
        shutil.move(made, keep)
    return BlockProfile(
        path=keep,
        bounds=(None,) * (intervals + 1),
        instructions=instructions,
        forks=0,
        ended=ended,
    )


def _totals(path: Path) -> tuple[int, int]:
    """Intervals in the file, and instructions as exp-bbv says at its end; without that it was cut short."""
    intervals = 0
    with path.open(encoding="ascii") as file:
        for line in file:
            intervals += line.startswith("T")
            if line.startswith("#") and "Total instructions:" in line:
                return intervals, int(line.split(":")[1].split()[0])
    raise InputError("exp-bbv did not write its totals; it was interrupted. Profile the run again.")
