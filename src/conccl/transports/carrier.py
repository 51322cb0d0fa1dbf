"""Carries out one rank's programs: copies, reductions, waits, and the comparison of headers before any of it.

Progress is one word a rank, which only grows: the number of the call, the tile, the steps complete. Slots of
staging are used in turn; before one is used again, its rank waits for those that read it. What a rank does is
in its header before anyone believes its word, so ranks that disagree find out and do not mix bytes.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from conccl.core.errors import ExecutionError
from conccl.transports.board import COLLECTIVES, Board
from conccl.transports.calls import Call, describe
from conccl.transports.geometry import HEADERS, Geometry
from conccl.transports.reductions import Reduce
from conccl.transports.rules import Choice
from conccl.transports.segment import Segment
from conccl.transports.tiles import AWAIT, COPY, PUBLISH, Lowered, Tiling
from conccl.transports.waiting import Waiting

CALL_SHIFT, TILE_SHIFT = 32, 12
"""A word of progress: call << 32 | tile << 12 | steps."""
MOST_CALLS = 1 << 32
MOST_TILES = 1 << (CALL_SHIFT - TILE_SHIFT)
MOST_STEPS = (1 << TILE_SHIFT) - 1

_SHORT = 32 * 1024
"""Up to here a copy takes less than giving Python's lock away and getting it back."""
_NAMES = ("copy", "combine", "await", "publish")

_move = ctypes.memmove
_move_short = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(
    ("memmove", ctypes.CDLL(None))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A call made ready once for all the times it is issued."""

    call: Call
    choice: Choice
    lowered: Lowered
    tiling: Tiling
    header: bytes
    reduce: Reduce | None
    scratch_nbytes: int


class Carrier:
    """One rank's execution of the calls of its group, one after the other."""

    def __init__(
        self,
        segment: Segment,
        geometry: Geometry,
        board: Board,
        waiting: Waiting,
        /,
        *,
        name: Callable[[], str],
        pace: Callable[[str], None] | None,
    ) -> None:
        self.number = 0
        """Of the call in progress, or of the last one; calls are counted from 1."""
        self._rank, self._count = board.rank, geometry.count
        self._board = board
        self._waiting = waiting
        self._name = name
        self._pace = pace
        self._tiles = 0
        self._met = [0] * self._count
        """Rank -> the last call in which its header was the same as ours."""
        self._header = b""
        """What this rank says that the call in progress is."""
        self._history = 0
        """A check sum of all calls before: headers that have the same one follow the same calls."""
        self._slowest = 0
        """The lowest call that all others are known to have entered."""
        self._busy: list[tuple[tuple[int, int], ...]] = [()] * geometry.slots
        """Slot -> (rank, word) that must have come before it is used again."""
        starts = [segment.address + geometry.staging_of(one) for one in range(self._count)]
        self._slots = [
            [start + slot * geometry.slot_nbytes for start in starts] for slot in range(geometry.slots)
        ]
        self._scratch = np.empty(0, np.uint8)

    def run(self, prepared: Prepared, /, *, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Carry out a call on blocks at these addresses."""
        self._enter(prepared)
        for tile in range(prepared.tiling.tiles):
            self._run_tile(prepared, tile, inputs, outputs)

    def doing(self) -> str:
        """What the call in progress is."""
        return f"group {self._name()!r} call {self.number}, {describe(self._header)}"

    def _enter(self, prepared: Prepared) -> None:
        """Begin a call: from here on peers compare its header."""
        board = self._board
        self._waiting.raise_if_ended()
        number = self.number = self.number + 1
        if number >= MOST_CALLS:
            raise ExecutionError(f"a group carries out {MOST_CALLS} calls. Make a new one.")
        self._header = prepared.header + self._history.to_bytes(8, "little")
        self._history = zlib.crc32(prepared.header, self._history)
        if number - self._slowest >= HEADERS:
            self._wait_for_the_slowest()
        board.write_header(number, self._header)
        board.words[board.progress[self._rank]] = number << CALL_SHIFT
        if self._scratch.size < prepared.scratch_nbytes:
            self._scratch = np.empty(prepared.scratch_nbytes, np.uint8)

    def _wait_for_the_slowest(self) -> None:
        """Peers compare with the headers of the last `HEADERS` calls: overwrite none that one may need."""
        words, progress = self._board.words, self._board.progress
        others = [rank for rank in range(self._count) if rank != self._rank]
        needed = (self.number - HEADERS + 1) << CALL_SHIFT
        for rank in others:
            if words[progress[rank]] < needed:
                self._wait(rank, needed)
        self._slowest = min((words[progress[rank]] >> CALL_SHIFT for rank in others), default=self.number)

    def _run_tile(  # noqa: C901 (one loop whose every call would be paid for by each small message)
        self, prepared: Prepared, tile: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> None:
        lowered, number, pace = prepared.lowered, self.number, self._pace
        board, met = self._board, self._met
        words, progress, mine = board.words, board.progress, board.progress[self._rank]
        slot = self._tiles % len(self._slots)
        self._tiles += 1
        for rank, value in self._busy[slot]:
            if words[progress[rank]] < value:
                self._wait(rank, value)
        base = number << CALL_SHIFT | tile << TILE_SHIFT
        self._busy[slot] = tuple((rank, base | steps) for rank, steps in lowered.release)
        lengths = prepared.tiling.lengths(lowered.contents, tile)
        addresses = lowered.addresses(
            prepared.tiling,
            tile,
            inputs=inputs,
            outputs=outputs,
            staging=self._slots[slot],
            scratch=self._scratch.ctypes.data if prepared.scratch_nbytes else 0,
        )
        for code in lowered.code:
            what = code[0]
            if pace is not None:
                pace(_NAMES[what])
            if what == COPY:
                nbytes = lengths[code[3]]
                to, source = addresses[code[1]], addresses[code[2]]
                if nbytes and to != source:
                    (_move_short if nbytes <= _SHORT else _move)(to, source, nbytes)
            elif what == AWAIT:
                rank = code[1]
                if met[rank] != number:
                    self._meet(rank)
                if words[progress[rank]] < base | code[2]:
                    self._wait(rank, base | code[2])
            elif what == PUBLISH:
                words[mine] = base | code[1]
                board.tell(COLLECTIVES)
            elif lengths[code[3]] and prepared.reduce is not None:
                sources = [addresses[one] for one in code[2]]
                prepared.reduce(addresses[code[1]], sources, lengths[code[3]], code[4])

    def _meet(self, rank: int) -> None:
        """Wait until a rank has entered this call, and compare what it says the call is."""
        board, number = self._board, self.number
        if board.words[board.progress[rank]] < number << CALL_SHIFT:
            self._wait(rank, number << CALL_SHIFT)
        theirs = board.header(rank, number)
        if theirs != self._header:
            self._disagree(rank, theirs)
        self._met[rank] = number

    def _disagree(self, rank: int, theirs: bytes | None) -> None:
        """End the group, showing the first call that differs, as far back as headers are kept."""
        first = self.number
        ours: bytes | None = self._header
        for call in range(first - 1, max(0, self.number - HEADERS), -1):
            mine, its = self._board.header(self._rank, call), self._board.header(rank, call)
            if mine is None or its is None:
                break
            if mine != its:
                first, ours, theirs = call, mine, its
        said = "one that it has left behind" if theirs is None else describe(theirs)
        self._waiting.end(
            "disagree",
            f"group {self._name()!r} call {first}: rank {self._rank} issued {describe(ours or b'')}, rank"
            f" {rank} issued {said}. Ranks must issue the same calls in the same order",
        )

    def _wait(self, rank: int, value: int) -> None:
        words, index = self._board.words, self._board.progress[rank]
        self._waiting.until(
            lambda: words[index] >= value,
            whom=rank,
            suspects=(rank,),
            doing=partial(self._waiting_for, rank),
        )

    def _waiting_for(self, rank: int) -> str:
        """What this call is, whom it waits for, and where everyone is."""
        places = "; ".join(self._where(one) for one in range(self._count) if one != self._rank)
        return f"{self.doing()}: rank {self._rank}, waiting for rank {rank} ({places}),"

    def _where(self, rank: int) -> str:
        call = self._board.words[self._board.progress[rank]] >> CALL_SHIFT
        if call == self.number:
            return f"rank {rank} is in this call"
        if call == 0:
            return f"rank {rank} has issued no call"
        header = self._board.header(rank, call)
        known = f", {describe(header)}" if header else ""
        verb = "is in" if call > self.number else "came to"
        return f"rank {rank} {verb} call {call}{known}"
