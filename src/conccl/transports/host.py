"""The host transport: collectives of processes on one host, through shared memory.

Each rank carries out its own program (`compiling`), tile by tile. Progress is one word a rank, which only
grows: the number of the call, the tile, the steps complete. Slots of staging are used in turn; before one is
used again, its rank waits for those that read it. What a rank does is in its header before anyone believes
its word, so ranks that disagree find out and do not mix bytes.
"""

from __future__ import annotations

import ctypes
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from conccl.collectives.catalogue import algorithm as named_algorithm
from conccl.collectives.catalogue import algorithms
from conccl.collectives.layout import REDUCING, ROOTED
from conccl.collectives.transfer import Direction, Reach, Transfer
from conccl.core.errors import ExecutionError, InputError
from conccl.core.plan import Engine
from conccl.core.units import format_bytes
from conccl.transports.board import COLLECTIVES, Board
from conccl.transports.calls import Call, describe, header_of
from conccl.transports.compiling import programs
from conccl.transports.geometry import HEADERS, Geometry
from conccl.transports.reductions import Reduce, reducer
from conccl.transports.rules import Choice, choose
from conccl.transports.segment import Segment
from conccl.transports.tiles import AWAIT, COPY, PUBLISH, Lowered, Tiling, tiling_of
from conccl.transports.waiting import Peers, Waiting

CALL_SHIFT, TILE_SHIFT = 32, 12
"""A word of progress: call << 32 | tile << 12 | steps."""
_MOST_TILES = 1 << (CALL_SHIFT - TILE_SHIFT)
_MOST_STEPS = 1 << TILE_SHIFT
_MOST_CALLS = 1 << 32

_HOLDS_THE_LOCK = 32 * 1024
"""Up to here a copy takes less than giving Python's lock away and getting it back."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How a call is carried out, and why so."""

    transport: str
    algorithm: str
    reason: str
    tiles: int
    """Runs of the program, one after the other; a message that staging holds takes one."""
    unit_nbytes: int
    """Bytes of a block that a tile moves."""
    fallbacks: tuple[str, ...]
    """What is not as it is at its best, and why."""

    def __str__(self) -> str:
        pieces = f", {self.tiles} tiles of {format_bytes(self.unit_nbytes)} a block" if self.tiles > 1 else ""
        rest = f" [{'; '.join(self.fallbacks)}]" if self.fallbacks else ""
        return f"{self.transport}: {self.algorithm} ({self.reason}){pieces}{rest}"


class HostTransport:
    """One rank's part in the collectives of its group; one thread at a time runs in it."""

    def __init__(
        self,
        segment: Segment,
        geometry: Geometry,
        rank: int,
        /,
        *,
        timeout_s: float,
        name: Callable[[], str],
        fallback: str = "",
        pace: Callable[[str], None] | None = None,
    ) -> None:
        """``name`` says which group errors are of; ``pace`` is called before each instruction (tests: delays)."""
        self.rank = rank
        self.count = geometry.count
        self.geometry = geometry
        self.segment = segment
        self.board = Board(segment, geometry, rank)
        self.peers = Peers(self.board, segment)
        self.waiting = Waiting(self.board, self.peers, door=COLLECTIVES, timeout_s=timeout_s)
        self.name = name
        self.fallbacks = tuple(
            one for one in (fallback, "" if self.board.sleeps_by_bell else "waits without futexes") if one
        )
        """What could not be had in the first way, and why."""
        self._pace = pace
        self._turn = threading.Lock()
        self._number = 0
        """Of the call in progress, or of the last one; calls are counted from 1."""
        self._tiles = 0
        self._met = [0] * self.count
        """Rank -> the last call in which its header was the same as ours."""
        self._header = b""
        """What this rank says that the call in progress is."""
        self._history = 0
        """A check sum of all calls before: headers that have the same one follow the same calls."""
        self._slowest = 0
        """The lowest call that all ranks are known to have entered."""
        self._busy: list[tuple[tuple[int, int], ...]] = [()] * geometry.slots
        """Slot -> (rank, word) that must have come before it is used again."""
        base = [segment.address + geometry.staging_of(one) for one in range(self.count)]
        self._slots = [
            [start + slot * geometry.slot_nbytes for start in base] for slot in range(geometry.slots)
        ]
        self._scratch = np.empty(0, np.uint8)

    def prepare(self, call: Call, /) -> Prepared:
        """Choose how a call is carried out, and compile it. The same call may be issued many times."""
        choice = choose(call, count=self.count)
        reach = named_algorithm(call.kind, choice.algorithm).reach
        made = programs(
            kind=call.kind,
            algorithm=choice.algorithm,
            count=self.count,
            root=call.root if call.kind in ROOTED else 0,
            place=call.place,
            average=call.reduction == "avg",
            transfer=transfer_for(reach),
        )
        lowered = Lowered(made, self.rank)
        tiling = tiling_of(
            call.message(self.count),
            staging_units=made.staging_units,
            slot_nbytes=self.geometry.slot_nbytes,
        )
        _check_fits(call, tiling, lowered)
        return Prepared(
            call=call,
            choice=choice,
            lowered=lowered,
            tiling=tiling,
            header=header_of(call, choice.algorithm),
            reduce=reducer(call.dtype, call.reduction) if call.kind in REDUCING else None,
            scratch_nbytes=lowered.program.scratch_units * tiling.unit_nbytes,
        )

    def run(self, prepared: Prepared, /, *, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Carry out a call; addresses are of the caller's blocks, of a whole message of its one.

        In place, a block that is both is in both. Bytes are in their places when this returns; peers may
        still read what this rank has staged. Raises what ends the group, on every rank.
        """
        with self._turn:
            try:
                self._open(prepared)
                for tile in range(prepared.tiling.tiles):
                    self._run_tile(prepared, tile, inputs, outputs)
            except (KeyboardInterrupt, SystemExit):
                self.board.abort(f"ended:{self._doing(prepared)} was interrupted on rank {self.rank}")
                raise

    @property
    def calls(self) -> int:
        """How many calls have been issued."""
        return self._number

    def explain(self, prepared: Prepared, /) -> Explanation:
        """How a call is carried out."""
        return Explanation(
            transport="host",
            algorithm=prepared.choice.algorithm,
            reason=prepared.choice.reason,
            tiles=prepared.tiling.tiles,
            unit_nbytes=prepared.tiling.unit_nbytes,
            fallbacks=self.fallbacks,
        )

    def disagree(self, text: str, /) -> None:
        """End the group because ranks want different things, and raise."""
        self.waiting.end("disagree", f"group {self.name()!r} call {self._number}: {text}")

    def end(self, reason: str, /) -> None:
        """End the group: every wait of every rank ends with an error, and no call is accepted any more."""
        self.board.abort(f"ended:group {self.name()!r} was ended by rank {self.rank}: {reason}")

    def close(self) -> None:
        """Leave the group. Peers may go on reading what this rank has staged."""
        self.board.leave()
        self.board.close()
        self.segment.close()

    def _open(self, prepared: Prepared) -> None:
        """Enter a call: from here on peers compare its header."""
        board = self.board
        self.waiting.raise_if_ended()
        number = self._number = self._number + 1
        if number >= _MOST_CALLS:
            raise ExecutionError(f"a group carries out {_MOST_CALLS} calls. Make a new one.")
        if number - self._slowest >= HEADERS:
            self._wait_for_the_slowest(prepared)
        self._header = prepared.header + self._history.to_bytes(8, "little")
        self._history = zlib.crc32(prepared.header, self._history)
        board.write_header(number, self._header)
        board.words[board.progress[self.rank]] = number << CALL_SHIFT
        if self._scratch.size < prepared.scratch_nbytes:
            self._scratch = np.empty(prepared.scratch_nbytes, np.uint8)

    def _wait_for_the_slowest(self, prepared: Prepared) -> None:
        """Peers compare headers with those of the last `HEADERS` calls: do not overwrite what one may need."""
        board = self.board
        needed = (self._number - HEADERS + 1) << CALL_SHIFT
        for rank in range(self.count):
            if rank != self.rank and board.words[board.progress[rank]] < needed:
                self._wait(rank, needed, prepared)
        self._slowest = min(
            (board.words[board.progress[rank]] >> CALL_SHIFT for rank in range(self.count) if rank != self.rank),
            default=self._number,
        )

    def _run_tile(
        self, prepared: Prepared, tile: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> None:
        lowered, number, pace = prepared.lowered, self._number, self._pace
        board = self.board
        words, progress, mine = board.words, board.progress, board.progress[self.rank]
        slot = self._tiles % len(self._slots)
        self._tiles += 1
        for rank, value in self._busy[slot]:
            if words[progress[rank]] < value:
                self._wait(rank, value, prepared)
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
        met = self._met
        for code in lowered.code:
            what = code[0]
            if pace is not None:
                pace(("copy", "combine", "await", "publish")[what])
            if what == COPY:
                nbytes = lengths[code[3]]
                to, source = addresses[code[1]], addresses[code[2]]
                if nbytes and to != source:
                    (_move_short if nbytes <= _HOLDS_THE_LOCK else _move)(to, source, nbytes)
            elif what == AWAIT:
                rank = code[1]
                if met[rank] != number:
                    self._meet(rank, prepared)
                if words[progress[rank]] < base | code[2]:
                    self._wait(rank, base | code[2], prepared)
            elif what == PUBLISH:
                words[mine] = base | code[1]
                board.tell(COLLECTIVES)
            elif lengths[code[3]] and prepared.reduce is not None:
                sources = [addresses[one] for one in code[2]]
                prepared.reduce(addresses[code[1]], sources, lengths[code[3]], code[4])

    def _meet(self, rank: int, prepared: Prepared) -> None:
        """Wait until a rank has entered this call, and compare what it says the call is."""
        board, number = self.board, self._number
        if board.words[board.progress[rank]] < number << CALL_SHIFT:
            self._wait(rank, number << CALL_SHIFT, prepared)
        theirs = board.header(rank, number)
        if theirs != self._header:
            self._disagree(rank, theirs)
        self._met[rank] = number

    def _disagree(self, rank: int, theirs: bytes | None) -> None:
        """End the group, showing the first call that differs, as far back as headers are kept."""
        first, ours, other = self._number, self._header, theirs
        for call in range(self._number - 1, max(0, self._number - HEADERS), -1):
            before = self.board.header(self.rank, call), self.board.header(rank, call)
            if None in before:
                break
            if before[0] != before[1]:
                first, (ours, other) = call, before
        said = "one that it has left behind" if other is None else describe(other)
        self.waiting.end(
            "disagree",
            f"group {self.name()!r} call {first}: rank {self.rank} issued {describe(ours)}, rank {rank} issued"
            f" {said}. Ranks must issue the same calls in the same order",
        )

    def _wait(self, rank: int, value: int, prepared: Prepared) -> None:
        words, index = self.board.words, self.board.progress[rank]
        self.waiting.until(
            lambda: words[index] >= value,
            whom=rank,
            suspects=(rank,),
            doing=partial(self._doing_with_peers, prepared, rank),
        )

    def _doing(self, prepared: Prepared) -> str:
        return f"group {self.name()!r} call {self._number}, {describe(prepared.header)}"

    def _doing_with_peers(self, prepared: Prepared, rank: int) -> str:
        """What this call is, whom it waits for, and where everyone is."""
        places = []
        for one in range(self.count):
            if one != self.rank:
                places.append(self._where(one))
        return f"{self._doing(prepared)}: rank {self.rank}, waiting for rank {rank} ({'; '.join(places)}),"

    def _where(self, rank: int) -> str:
        word = self.board.words[self.board.progress[rank]]
        call, here = word >> CALL_SHIFT, self._number
        if call == here:
            return f"rank {rank} is in this call"
        header = self.board.header(rank, call) if call else None
        known = f", {describe(header)}" if header else ""
        if call == 0:
            return f"rank {rank} has issued no call"
        return f"rank {rank} is in call {call}{known}" if call > here else f"rank {rank} came to call {call}{known}"


def transfer_for(reach: Reach, /) -> Transfer:
    """The choices with which fragments are built for processors and shared memory."""
    return Transfer(
        engine=Engine.SM,
        direction=Direction.PULL,
        reach=reach,
        # By way of host memory: a lane to copy out and one to copy in, as fragments have it. Others: one,
        # so that no algorithm cuts blocks among engines.
        engines=None if reach is Reach.HOST else 1,
    )


def _check_fits(call: Call, tiling: Tiling, lowered: Lowered) -> None:
    most = max((code[1] for code in lowered.code if code[0] == PUBLISH), default=0)
    if most >= _MOST_STEPS:
        raise InputError(
            f"{call.kind} by {call.algorithm!r} takes {most} steps a rank; {_MOST_STEPS - 1} are the most."
            " Use another algorithm."
        )
    if tiling.tiles > _MOST_TILES:
        raise InputError(
            f"{call.kind} of {tiling.message.nbytes} bytes passes in {tiling.tiles} tiles of"
            f" {tiling.unit_nbytes} bytes; {_MOST_TILES} are the most. Give more shared memory."
        )


def algorithm_names(call: Call, /) -> tuple[str, ...]:
    """The algorithms by which a call can be carried out here."""
    return tuple(
        one.name
        for one in algorithms(call.kind).values()
        if one.command is None and not one.by_node and call.place in one.places
    )
