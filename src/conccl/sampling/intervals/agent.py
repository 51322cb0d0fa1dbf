"""The shared file between conccl and the counting agent that is preloaded into a program.

The structures are those of csrc/agent.h, field by field.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from conccl.core.errors import ExecutionError, InputError
from conccl.sampling.intervals.build import built
from conccl.sampling.intervals.elf import is_dynamic
from conccl.sampling.intervals.program import Child, Program, require_one_thread

MAGIC = 0x31746E6567614343
MODULES = 64
TRIGGERS = 4096
EVENTS = 8
RING_WORDS = 1 << 22
PAGE = 4096
COUNT, TRIGGER = 0, 1
"""Modes: count everything, or fire at chosen executions of chosen sites."""
STARTING, READY, FAILED = 0, 1, 2
AT_START = (1 << 64) - 1
"""The site of a trigger that fires before the program's first instruction."""


class _Event(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint64), ("config", ctypes.c_uint64)]


class Header(ctypes.Structure):
    """struct agent_header."""

    _fields_ = [
        *(
            (name, ctypes.c_uint64)
            for name in (
                "magic", "mode", "capacity", "state", "pid", "forks", "threads", "modules",
                "sites", "refused",
                "triggers", "reached", "waiting", "follow", "unfollow", "events",
            )
        ),
        ("event", _Event * EVENTS),
        *(
            (name, ctypes.c_uint64)
            for name in (
                "period", "head", "tail", "cursor", "trace", "half_words", "begun", "ended",
            )
        ),
        ("end", ctypes.c_uint64 * 2),
        *((name, ctypes.c_uint64) for name in ("read", "table_full", "own_low", "own_high")),
        ("trace_path", ctypes.c_char * 256),
        ("failure", ctypes.c_char * 256),
    ]  # fmt: skip


class Module(ctypes.Structure):
    """struct agent_module."""

    _fields_ = [
        ("thunks_low", ctypes.c_uint64),
        ("thunks_high", ctypes.c_uint64),
        ("path", ctypes.c_char * 496),
    ]


SITE = np.dtype([("pc", "<u8"), ("module", "<u4"), ("kind", "<u4")])
TRIGGER_ROW = np.dtype([("site", "<u8"), ("count", "<u8"), ("action", "<u8")])


class SharedFile:
    """The file mapped into this process, with its tables as arrays that see what the program writes.

    Made -> the program maps it (`pid` set) -> READY or FAILED -> closed, which removes the file.
    """

    def __init__(self, *, mode: int, capacity: int) -> None:
        sites_at = ctypes.sizeof(Header) + MODULES * ctypes.sizeof(Module)
        triggers_at = sites_at + capacity * SITE.itemsize
        counters_at = _whole_pages(triggers_at + TRIGGERS * TRIGGER_ROW.itemsize)
        ring_at = counters_at + _whole_pages(8 * capacity)
        descriptor, name = tempfile.mkstemp(prefix="conccl-agent-", dir=shared_memory())
        self.path = Path(name)
        try:
            os.ftruncate(descriptor, ring_at + 8 * RING_WORDS)
            self._map = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        self.header = Header.from_buffer(self._map)
        self.header.magic, self.header.mode, self.header.capacity = MAGIC, mode, capacity
        self.modules = (Module * MODULES).from_buffer(self._map, ctypes.sizeof(Header))
        self.sites = np.frombuffer(self._map, SITE, capacity, sites_at)
        self.triggers = np.frombuffer(self._map, TRIGGER_ROW, TRIGGERS, triggers_at)
        self.counters: NDArray[np.uint64] = np.frombuffer(self._map, "<u8", capacity, counters_at)
        self.ring: NDArray[np.uint64] = np.frombuffer(self._map, "<u8", RING_WORDS, ring_at)

    def module_paths(self) -> list[str]:
        """Executables and libraries that have sites."""
        return [os.fsdecode(self.modules[i].path) for i in range(self.header.modules)]

    def close(self) -> None:
        """Remove the file; arrays that are still around keep their memory."""
        self.path.unlink(missing_ok=True)


def _whole_pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def shared_memory() -> str:
    """A folder in memory if there is one with room, else one for temporary files."""
    folder = "/dev/shm"
    if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 2 << 30:
        return folder
    return tempfile.gettempdir()


@contextlib.contextmanager
def agent_run(program: Program, shared: SharedFile, /) -> Iterator[Child]:
    """Start the program with the agent in it; it has begun to run when the block is entered."""
    if not is_dynamic(program.argv[0]):
        raise InputError(
            f"{program.argv[0]} is linked statically, so nothing can be preloaded into it. "
            "Use --method simpoint."
        )
    environment = program.environment()
    preload = {
        "CONCCL_AGENT": str(shared.path),
        "CONCCL_AGENT_PRELOAD": environment.get("LD_PRELOAD", ""),
        "LD_PRELOAD": " ".join(filter(None, (str(built("agent")), environment.get("LD_PRELOAD")))),
    }
    with Child(program.argv, program=program, environment=environment | preload) as child:
        yield child


def require_ready(shared: SharedFile, program: Program, /) -> None:
    """Raise what kept the agent from working, once it has had the time to start."""
    name = program.executable.name
    if shared.header.state == FAILED:
        raise ExecutionError(
            f"the counting agent could not work in {name}: {os.fsdecode(shared.header.failure)}."
        )
    if shared.header.pid == 0:
        raise InputError(f"the loader did not preload the counting agent into {name}. Use --method simpoint.")
    require_one_thread(program, more=shared.header.threads)
