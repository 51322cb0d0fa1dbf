"""The program with known phases, and a cache folder of its own for the parts in C."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from conccl.sampling.intervals.program import Program, find_program
from phased_program import compiled, require


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the parts in C are built; they are not left in the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(folder))
    yield folder
    patch.undo()


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program."""
    return compiled(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def program(binary: Path) -> Program:
    """Two rounds of its phases."""
    return find_program([str(binary), "2"])


@pytest.fixture
def qemu() -> None:
    """Skips where QEMU is not installed."""
    require("qemu-x86_64")


@pytest.fixture
def attachable() -> None:
    """Skips where a running program cannot be followed."""
    pytest.importorskip("frida", reason="frida is not installed")
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and scope.read_text().strip() not in {"0", "1"} and os.getuid() != 0:
        pytest.skip("this machine does not let processes be traced")
