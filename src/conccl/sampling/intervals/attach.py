"""Attach on demand: the program runs natively, and is followed only through the chosen intervals.

The counting agent counts down to each marker; there the program itself calls frida's Stalker, which copies
the code that it executes from then on, with additions that write each block and each address into a shared
file. This process runs the cycle model over what is written.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from conccl.core.errors import ExecutionError, MissingExtraError
from conccl.sampling.intervals.agent import (
    AT_START,
    MODULES,
    READY,
    TRIGGER,
    TRIGGERS,
    Header,
    Module,
    SharedFile,
    agent_run,
    require_ready,
    shared_memory,
)
from conccl.sampling.intervals.build import SOURCES, built
from conccl.sampling.intervals.markers import Site
from conccl.sampling.intervals.program import Ended, Program
from conccl.sampling.intervals.windows import COUNTERS, Detail, Event, is_boundary, sites_of

SITES_PER_MODULE = 512  # counters of a module begin on a page
TABLE_WORDS = 1 << 24  # TRACE_TABLE
NO_EVENT = (1 << 32) - 1  # in the last row
ATTEMPTS = 5
"""To attach, on a machine so busy that frida waits in vain for the program to stop."""
HALF_WORDS = 1 << 29
"""Room for the trace of one interval; only what is written takes memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What was learned from the intervals that were followed."""

    detail: Detail
    words: int
    """Of the trace; none of it is kept."""
    ended: Ended


def follow(program: Program, events: Sequence[Event], /, *, end: int) -> Followed:
    """Run the program natively once more and follow it between the events.

    `end` is the boundary at the end of the program.
    """
    frida = _import_frida()
    shared = _armed(events)
    trace = _Trace()
    shared.header.half_words = HALF_WORDS
    shared.header.trace_path = os.fsencode(trace.path)
    try:
        with agent_run(program, shared) as child, _Follower(frida, shared, trace) as follower:
            ended = child.wait(lambda: follower.go_on(child.process.pid), every_s=0.002)
            require_ready(shared, program)
            follower.finish()
            return follower.result(events, ended, end=end)
    finally:
        trace.close()
        shared.close()


def require_frida() -> None:
    """Raise what to install where the follower cannot work."""
    _import_frida()


def _import_frida() -> Any:
    try:
        import frida  # noqa: PLC0415 (an optional extra)
    except ImportError:
        raise MissingExtraError(module="frida", extra="sample") from None
    return frida


def _armed(events: Sequence[Event]) -> SharedFile:
    """The shared file with the table of sites and triggers."""
    needed = sites_of(events)
    paths = list(dict.fromkeys(site.path for site in needed))
    if len(events) > TRIGGERS or len(paths) > MODULES:
        raise ExecutionError(
            f"{len(events)} markers in {len(paths)} files are too many; take fewer clusters."
        )
    shared = SharedFile(mode=TRIGGER, capacity=SITES_PER_MODULE * max(len(paths), 1))
    header = shared.header
    header.modules, header.sites = len(paths), SITES_PER_MODULE * len(paths)
    place: dict[Site, int] = {}
    for number, path in enumerate(paths):
        shared.modules[number].path = os.fsencode(path)
        first = SITES_PER_MODULE * number
        shared.sites["module"][first : first + SITES_PER_MODULE] = number
        for site in (site for site in needed if site.path == path):
            at = first + sum(1 for other in place if other.path == path)
            place[site] = at
            shared.sites[at] = (site.pc, number, site.kind.number)
    header.triggers = len(events)
    for number, event in enumerate(events):
        where = (AT_START, 0) if event.marker is None else (place[event.marker.site], event.marker.count)
        shared.triggers[number] = (*where, int(event.action))
    return shared


class _Trace:
    """The file that the program writes and this process reads, mapped."""

    def __init__(self) -> None:
        descriptor, name = tempfile.mkstemp(prefix="conccl-trace-", dir=shared_memory())
        self.path = Path(name)
        os.ftruncate(descriptor, 8 * (TABLE_WORDS + 2 * HALF_WORDS))
        self._map = mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_NORESERVE", 0))
        os.close(descriptor)
        anchor = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(anchor)

    def half(self, segment: int) -> int:
        """Address of a segment's first word."""
        return self.address + 8 * (TABLE_WORDS + segment % 2 * HALF_WORDS)

    def close(self) -> None:
        self.path.unlink(missing_ok=True)


class _Follower:
    """frida's session in the program, and the model that reads what the program writes.

    Made -> attached (the agent is ready) -> reading, segment by segment -> finished.
    """

    def __init__(self, frida: Any, shared: SharedFile, trace: _Trace) -> None:
        self._frida, self._shared, self._trace = frida, shared, trace
        self._session: Any = None
        self._library = _replay_library()
        self._replay: int | None = None
        self._position = 0
        self._attempts = 0
        self.words = 0
        self.complaint = ""

    def __enter__(self) -> _Follower:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._replay is not None:
            self._library.replay_free(self._replay)
        self._replay = None

    def go_on(self, pid: int) -> None:
        """Attach when the program is ready; read what there is."""
        if self._session is None and self._shared.header.state == READY:
            self._attach(pid)
        if self._session is not None:
            self._read()
        if self.complaint:
            raise ExecutionError(f"frida could not follow the program: {self.complaint}")

    def finish(self) -> None:
        """Read the rest, now that the program has ended."""
        if self._shared.header.table_full:
            raise ExecutionError("the followed code does not fit the table of blocks; take fewer clusters.")
        if self._session is None:
            raise ExecutionError("the program ended before it could be followed; take longer runs.")
        while self._read():
            pass
        if self._replay is not None:
            self._library.replay_end(self._replay)

    def result(self, events: Sequence[Event], ended: Ended, *, end: int) -> Followed:
        """Counters at each boundary that was reached."""
        if self._replay is None:
            raise ExecutionError("no marker was reached: the program does not do the same in each run.")
        rows = ctypes.POINTER(ctypes.c_uint64)()
        count = self._library.replay_rows(self._replay, ctypes.byref(rows))
        width = 1 + len(COUNTERS)
        table = np.empty((0, width), np.int64)
        if count:
            table = np.ctypeslib.as_array(rows, (count, width)).astype(np.int64)
        at = {events[int(row[0])].bound: row[1:] for row in table if is_boundary(events, int(row[0]))}
        if count and table[-1, 0] == NO_EVENT:
            at[end] = table[-1, 1:]
        return Followed(detail=Detail(at=at), words=self.words, ended=ended)

    def _attach(self, pid: int) -> None:
        frida = self._frida
        try:
            self._session = frida.get_local_device().attach(pid)
            script = self._session.create_script(_script())
            script.on("message", self._listen)
            script.load()
        except frida.ProcessNotFoundError:
            return  # it has ended; `finish` says so
        except (frida.InvalidOperationError, frida.TransportError):
            return
        except Exception as error:  # frida raises many kinds
            self._session = None
            self._attempts += 1
            if isinstance(error, frida.TimedOutError) and self._attempts < ATTEMPTS:
                return  # the machine is busy; the next poll tries again
            raise ExecutionError(
                f"frida could not attach to the program: {error}. It needs the right to trace processes "
                "(sysctl kernel.yama.ptrace_scope=0; containers: --cap-add SYS_PTRACE). Or use "
                "--translator qemu."
            ) from error

    def _listen(self, message: dict[str, Any], _data: bytes | None) -> None:
        if message.get("type") == "error":
            self.complaint = str(message.get("description"))

    def _begin_replay(self) -> int:
        replay = self._library.replay_new(self._trace.address)
        if not replay:
            raise ExecutionError("no memory for the cycle model.")
        return int(replay)

    def _read(self) -> bool:
        """Run the model over words that have been written; whether there may be more."""
        header = self._shared.header
        segment = header.read
        if header.begun <= segment:
            return False
        if self._replay is None:
            self._replay = self._begin_replay()
        complete = header.ended > segment
        if complete:
            end = header.end[segment % 2]
        else:
            cursor = header.cursor
            if header.begun != segment + 1 or header.ended > segment:
                return True  # it went on meanwhile: look again
            end = (cursor - header.trace) // 8 - TABLE_WORDS - segment % 2 * HALF_WORDS
        fresh = end - self._position
        if fresh > 0:
            start = self._trace.half(segment) + 8 * self._position
            if not self._library.replay_read(self._replay, start, fresh):
                raise ExecutionError("no memory for the cycle model.")
            self.words += fresh
            self._position = end
        if end > 0.9 * HALF_WORDS:
            raise ExecutionError(
                "an interval does not come to its end marker: the program does not do the same in each run."
            )
        if complete:
            self._position = 0
            header.read = segment + 1
        return bool(complete)


def _replay_library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(built("replay")))
    library.replay_new.restype = ctypes.c_void_p
    library.replay_new.argtypes = [ctypes.c_void_p]
    library.replay_free.argtypes = [ctypes.c_void_p]
    library.replay_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    library.replay_end.argtypes = [ctypes.c_void_p]
    library.replay_rows.restype = ctypes.c_uint64
    library.replay_rows.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


def _script() -> str:
    """follower.js, with the layout of the shared file and the source that frida compiles in the program."""
    layout: dict[str, Any] = {name: getattr(Header, name).offset for name, *_ in Header._fields_}
    layout["agent"] = built("agent").name
    layout["module_paths"] = ctypes.sizeof(Header)
    layout["module_size"] = ctypes.sizeof(Module)
    source = (SOURCES / "follower.c").read_text(encoding="utf-8")
    source = source.replace('#include "trace.h"', (SOURCES / "trace.h").read_text(encoding="utf-8"))
    script = (SOURCES / "follower.js").read_text(encoding="utf-8")
    return f"const LAYOUT = {json.dumps(layout)};\nconst SOURCE = {json.dumps(source)};\n{script}"
