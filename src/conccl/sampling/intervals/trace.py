"""The trace that a followed program writes, read through the cycle model as it comes.

Its layout is that of csrc/trace.h; the model runs in this process (csrc/replay.c).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from conccl.core.errors import ExecutionError
from conccl.sampling.intervals.agent import SharedFile, shared_memory
from conccl.sampling.intervals.build import built
from conccl.sampling.intervals.windows import COUNTERS, Detail, Event, is_boundary

TABLE_WORDS = 1 << 24  # TRACE_TABLE
NO_EVENT = (1 << 32) - 1  # in the last row
HALF_WORDS = 1 << 29
"""Room for the trace of one interval; only what is written takes memory."""


class TraceFile:
    """The file that the program writes and this process reads, mapped; `close` removes it."""

    def __init__(self) -> None:
        descriptor, name = tempfile.mkstemp(prefix="conccl-trace-", dir=shared_memory())
        self.path = Path(name)
        os.ftruncate(descriptor, 8 * (TABLE_WORDS + 2 * HALF_WORDS))
        self._map = mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_NORESERVE", 0))
        os.close(descriptor)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def half(self, segment: int) -> int:
        """Address of a segment's first word."""
        return self.address + 8 * (TABLE_WORDS + segment % 2 * HALF_WORDS)

    def close(self) -> None:
        """Remove the file; the program keeps its mapping of it."""
        self.path.unlink(missing_ok=True)


class TraceReader:
    """The model, fed with segment after segment of the trace.

    Made -> `read` while the program runs -> `finish` when it has ended -> `detail` -> closed.
    """

    def __init__(self, shared: SharedFile, trace: TraceFile) -> None:
        self._shared, self._trace = shared, trace
        self._library = _replay_library()
        self._replay = self._library.replay_new(trace.address)
        if not self._replay:
            raise ExecutionError("no memory for the cycle model.")
        self._position = 0  # in the segment
        self.words = 0

    def close(self) -> None:
        """Free the model."""
        self._library.replay_free(self._replay)
        self._replay = None

    def read(self) -> bool:
        """Run the model over what has been written since; whether there may be more."""
        header = self._shared.header
        segment = header.read
        if header.begun <= segment:
            return False
        complete = header.ended > segment
        if complete:
            end = header.end[segment % 2]
        else:
            cursor = header.cursor
            if header.begun != segment + 1 or header.ended > segment:
                return True  # it went on meanwhile: look again
            end = (cursor - header.trace) // 8 - TABLE_WORDS - segment % 2 * HALF_WORDS
        self._read_up_to(end, segment)
        if complete:
            self._position = 0
            header.read = segment + 1
        return bool(complete)

    def _read_up_to(self, end: int, segment: int) -> None:
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

    def finish(self) -> None:
        """Read the rest, now that the program has ended."""
        if self._shared.header.table_full:
            raise ExecutionError("the followed code does not fit the table of blocks; take fewer clusters.")
        while self.read():
            pass
        self._library.replay_end(self._replay)

    def detail(self, events: Sequence[Event], /, *, end: int) -> Detail:
        """Counters at each boundary that was reached; `end` is the one at the end of the program."""
        rows = ctypes.POINTER(ctypes.c_uint64)()
        count = self._library.replay_rows(self._replay, ctypes.byref(rows))
        table = np.ctypeslib.as_array(rows, (count, 1 + len(COUNTERS))).astype(np.int64)
        at = {events[int(row[0])].bound: row[1:] for row in table if is_boundary(events, int(row[0]))}
        if table[-1, 0] == NO_EVENT:
            at[end] = table[-1, 1:]
        return Detail(at=at)


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
