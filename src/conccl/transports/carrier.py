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
from typing import Any

import numpy as np

from conccl.core.errors import ExecutionError
from conccl.transports.board import COLLECTIVES, Board
from conccl.transports.calls import Call, describe
from conccl.transports.geometry import HEADERS, Geometry
from conccl.transports.peer_memory import read
from conccl.transports.reductions import Reduce
from conccl.transports.rules import Choice, Reads
from conccl.transports.segment import Segment
from conccl.transports.tiles import (
    AWAIT,
    COPY,
    FETCH,
    FETCH_COMBINE,
    GRAIN,
    PUBLISH,
    Lowered,
    Tiling,
    address_abroad,
    table_of,
)
from conccl.transports.waiting import Waiting

CALL_SHIFT, TILE_SHIFT = 32, 12
"""A word of progress: call << 32 | tile << 12 | steps."""
MOST_CALLS = 1 << 32
MOST_TILES = 1 << (CALL_SHIFT - TILE_SHIFT)
MOST_STEPS = (1 << TILE_SHIFT) - 1

_SHORT = 32 * 1024
"""Up to here a copy takes less than giving Python's lock away and getting it back."""
_FETCHED = 512 * 1024
"""Bytes of all peers together that are fetched and reduced at a time: they stay in a second-level cache.
A guess between the cost of a system call and that cache."""
_GONE_S = 2.0
"""How long a rank whose memory cannot be read any more may take to be known as dead."""
_NAMES = ("copy", "combine", "await", "publish", "fetch", "fetch and combine")

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
        self._fetched = np.empty(0, np.uint8)
        self._tables: list[tuple[int, list[int]]] = [(0, [])] * self._count
        """Rank -> the call of which its addresses are, and those."""

    def run(self, prepared: Prepared, /, *, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Carry out a call on blocks at these addresses."""
        self._enter(prepared, inputs, outputs)
        for tile in range(prepared.tiling.tiles):
            self._run_tile(prepared, tile, inputs, outputs)
        if prepared.lowered.reads_peers:
            # Whoever has ended the group may have given its buffers away while they were read.
            self._waiting.raise_if_ended()

    def doing(self) -> str:
        """What the call in progress is."""
        return f"group {self._name()!r} call {self.number}, {describe(self._header)}"

    def _enter(self, prepared: Prepared, inputs: Sequence[int], outputs: Sequence[int]) -> None:
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
        if self._scratch.size < prepared.scratch_nbytes:
            self._scratch = np.empty(prepared.scratch_nbytes, np.uint8)
        if prepared.choice.reads is Reads.PEERS:
            # Nobody looks up the last such call's table any more: it was not left before.
            board.write_table(table_of(inputs, outputs, self._scratch.ctypes.data, self._count))
        board.write_header(number, self._header)
        board.words[board.progress[self._rank]] = number << CALL_SHIFT

    def _wait_for_the_slowest(self) -> None:
        """Peers compare with the headers of the last `HEADERS` calls: overwrite none that one may need."""
        words, progress = self._board.words, self._board.progress
        others = [rank for rank in range(self._count) if rank != self._rank]
        needed = (self.number - HEADERS + 1) << CALL_SHIFT
        for rank in others:
            if words[progress[rank]] < needed:
                self._wait(rank, needed)
        self._slowest = min((words[progress[rank]] >> CALL_SHIFT for rank in others), default=self.number)

    def _run_tile(  # noqa: C901, PLR0912 (one loop whose every call would be paid for by each small message)
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
            elif not lengths[code[3]]:
                pass
            elif what == FETCH:
                self._fetch(*self._abroad(prepared, code[2]), to=addresses[code[1]], nbytes=lengths[code[3]])
            elif what == FETCH_COMBINE:
                self._fetch_and_combine(prepared, code, addresses, lengths[code[3]])
            elif prepared.reduce is not None:
                sources = [addresses[one] for one in code[2]]
                prepared.reduce(addresses[code[1]], sources, lengths[code[3]], code[4])

    def _abroad(self, prepared: Prepared, number: int) -> tuple[int, int]:
        """Whose memory a block lies in, and at which address there."""
        block = prepared.lowered.blocks[number]
        rank = block.rank
        call, table = self._tables[rank]
        if call != self.number:
            table = self._board.table(rank)
            self._tables[rank] = self.number, table
        return rank, address_abroad(block, table, prepared.tiling)

    def _fetch(self, rank: int, address: int, /, *, to: int, nbytes: int) -> None:
        """Bytes from a peer's memory."""
        try:
            read(self._board.pid(rank), address, to, nbytes)
        except OSError as error:
            self._unreadable(rank, nbytes, error)

    def _unreadable(self, rank: int, nbytes: int, error: OSError) -> None:
        """End the group: most often because the peer has died, which may take a moment to be known."""
        self._waiting.await_end(rank, doing=partial(self._waiting_for, rank), seconds=_GONE_S)
        self._waiting.end(
            "ended",
            f"{self.doing()}: rank {self._rank} cannot read {nbytes} bytes of rank {rank}'s memory:"
            f" {error.strerror}. Memory that a device maps cannot be read so; use reads='staging'",
        )

    def _fetch_and_combine(
        self, prepared: Prepared, code: tuple[Any, ...], addresses: Sequence[int], nbytes: int
    ) -> None:
        """Reduce own and peers' bytes, so many at a time that what is fetched stays in the cache."""
        assert prepared.reduce is not None
        blocks = prepared.lowered.blocks
        sources = [
            self._abroad(prepared, one) if blocks[one].rank >= 0 else (-1, addresses[one]) for one in code[2]
        ]
        abroad = sum(rank >= 0 for rank, _ in sources)
        step = max(GRAIN, _FETCHED // abroad // GRAIN * GRAIN)
        if self._fetched.size < abroad * step:
            self._fetched = np.empty(abroad * step, np.uint8)
        first = self._fetched.ctypes.data
        for start in range(0, nbytes, step):
            length = min(step, nbytes - start)
            slot, here = first, []
            for rank, address in sources:
                if rank < 0:
                    here.append(address + start)
                    continue
                self._fetch(rank, address + start, to=slot, nbytes=length)
                here.append(slot)
                slot += step
            prepared.reduce(addresses[code[1]] + start, here, length, code[4])

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
