"""Attach on demand: the program runs natively, and is followed only through the chosen intervals.

The counting agent counts down to each marker; there the program itself calls frida's Stalker, which copies
the code that it executes from then on, with additions that write each block and each address into a shared
file. This process runs the cycle model over what is written.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
)
from conccl.sampling.intervals.build import SOURCES, built
from conccl.sampling.intervals.markers import Site
from conccl.sampling.intervals.program import Ended, Program
from conccl.sampling.intervals.trace import HALF_WORDS, TraceFile, TraceReader
from conccl.sampling.intervals.windows import Detail, Event, sites_of

SITES_PER_MODULE = 512  # counters of a module begin on a page
ATTEMPTS = 5
"""To attach, on a machine so busy that frida waits in vain for the program to stop."""


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
    trace = TraceFile()
    shared.header.half_words = HALF_WORDS
    shared.header.trace_path = os.fsencode(trace.path)
    follower = _Follower(frida, shared)
    try:
        with contextlib.closing(TraceReader(shared, trace)) as reader, agent_run(program, shared) as child:

            def go_on() -> None:
                follower.attach_once_ready(child.process.pid)
                reader.read()

            ended = child.wait(go_on, every_s=0.002)
            require_ready(shared, program)
            follower.require_attached()
            reader.finish()
            return Followed(detail=reader.detail(events, end=end), words=reader.words, ended=ended)
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


class _Follower:
    """frida's session in the program: attached as soon as the agent is ready."""

    def __init__(self, frida: Any, shared: SharedFile) -> None:
        self._frida, self._shared = frida, shared
        self._session: Any = None
        self._attempts = 0
        self._complaint = ""

    def attach_once_ready(self, pid: int) -> None:
        """Attach, unless that is done or too early; raise what went wrong in the program since."""
        if self._session is None and self._shared.header.state == READY:
            self._attach(pid)
        if self._complaint:
            raise ExecutionError(f"frida could not follow the program: {self._complaint}")

    def require_attached(self) -> None:
        """Raise if the program was over too early."""
        if self._session is None:
            raise ExecutionError("the program ended before it could be followed; take longer runs.")
        if self._shared.header.begun == 0:
            raise ExecutionError("no marker was reached: the program does not do the same in each run.")

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
            self._complaint = str(message.get("description"))


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
