"""A program to sample: found, made repeatable, run, and its end understood."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conccl.core.errors import InputError

REPEATABLE = {
    # translators know fewer instructions than the machine: let the C library choose the same code in each run
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX2,-ERMS,-FSRM",
    "PYTHONHASHSEED": "0",
    "PERL_HASH_SEED": "0",
}
"""What is set, where the user has not set it, so that runs execute the same instructions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command that can be run again and again with the same result."""

    argv: tuple[str, ...]
    """The executable by its path, and its arguments; a script is preceded by its interpreter."""
    stdin: str = os.devnull

    @property
    def executable(self) -> Path:
        """The file that runs."""
        return Path(self.argv[0])

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The user's environment, made repeatable."""
        return REPEATABLE | dict(os.environ) | dict(extra or {})

    def fingerprint(self) -> str:
        """The same as long as command, executable and input are the same."""
        status = self.executable.stat()
        parts = [*self.argv, self.stdin, str(Path.cwd()), str(status.st_size), str(status.st_mtime_ns)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a finished child took."""

    wall_ns: int
    cpu_ns: int
    """User and system time of the child and what it waited for."""


def find_program(command: Sequence[str], /, *, stdin: str | None = None) -> Program:
    """Resolve a command line: the executable on PATH, the interpreter of a script, the file to read."""
    if not command:
        raise InputError("no program was given. Write it behind --, as in: ... -- gzip -k file")
    if stdin is not None and not Path(stdin).is_file():
        raise InputError(f"--stdin {stdin}: no such file.")
    found = shutil.which(command[0])
    if found is None:
        raise InputError(
            f"program {command[0]!r} was not found, or may not be executed. Give a name on PATH or a path."
        )
    argv = _behind_interpreter([os.path.realpath(found), *command[1:]])
    return Program(argv=tuple(argv), stdin=stdin or os.devnull)


def _behind_interpreter(argv: list[str]) -> list[str]:
    with Path(argv[0]).open("rb") as file:
        first = file.readline(512)
    if not first.startswith(b"#!"):
        return argv
    words = first[2:].decode(errors="replace").split(maxsplit=1)
    if words and Path(words[0]).name == "env" and len(words) > 1:
        words = words[1].split()
    found = shutil.which(words[0]) if words else None
    if found is None:
        raise InputError(
            f"{argv[0]} is a script without an interpreter that is here: "
            f"{first.decode(errors='replace').strip()}"
        )
    return [os.path.realpath(found), *words[1:], *argv]


def require_one_thread(program: Program, /, *, more: int) -> None:
    """Refuse a program that started more threads than its first."""
    if more > 0:
        raise InputError(
            f"{program.executable.name} started {more} more threads; simulation points are defined for one. "
            "Run it with one thread (many programs have an option such as -T1)."
        )


_PERSONALITY = 135  # the system call, x86-64
_ADDR_NO_RANDOMIZE = 0x0040000
_libc = ctypes.CDLL(None)


@contextlib.contextmanager
def _same_addresses() -> Iterator[None]:
    """Children that this thread starts in the block get the same addresses in each run.

    Where that is forbidden, runs differ as they do anyway.
    """
    before = _libc.syscall(_PERSONALITY, ctypes.c_ulong(0xFFFFFFFF))
    if before >= 0:
        _libc.syscall(_PERSONALITY, ctypes.c_ulong(before | _ADDR_NO_RANDOMIZE))
    try:
        yield
    finally:
        if before >= 0:
            _libc.syscall(_PERSONALITY, ctypes.c_ulong(before))


class Child:
    """A running command: stopped by leaving the block, its last words and its cost kept.

    Ready (constructed) -> running (entered) -> ended (`wait` returned, or killed on exit).
    """

    def __init__(
        self, command: Sequence[str], /, *, program: Program, environment: Mapping[str, str]
    ) -> None:
        self._command = list(command)
        self._program = program
        self._environment = dict(environment)

    def __enter__(self) -> Child:
        self._stderr = tempfile.TemporaryFile()
        self._began = time.perf_counter_ns()
        with Path(self._program.stdin).open("rb") as stdin, _same_addresses():
            self.process = subprocess.Popen(
                self._command,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=self._environment,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        self._stderr.close()

    def wait(self, poll: Callable[[], None] | None = None, /, *, every_s: float = 0.005) -> Ended:
        """Wait for the end, calling `poll` meanwhile; a failed program is an `InputError`."""
        while True:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG if poll else 0)
            if pid:
                break
            if poll:
                poll()
            time.sleep(every_s)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        wall_ns = time.perf_counter_ns() - self._began
        self._require_success()
        return Ended(wall_ns=wall_ns, cpu_ns=round(1e9 * (usage.ru_utime + usage.ru_stime)))

    def last_words(self) -> str:
        """The end of what it wrote on standard error."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace").strip()[-400:]

    def _require_success(self) -> None:
        code = self.process.returncode
        if code == 0:
            return
        name = Path(self._program.argv[0]).name
        how = f"exit status {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
        words = self.last_words()
        said = f" It said: {words}" if words else ""
        raise InputError(f"{name} ended with {how}.{said} Only a run that succeeds can be sampled.")
