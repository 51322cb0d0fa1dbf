"""The words of a group in shared memory: progress, bells, who sleeps for whom, headers, and why it ended.

Every word has one writer, except the abort word, which only ever becomes 1. Words are read and written whole
(aligned, at most 8 bytes). x86-64 lets other processors see stores in the order in which they were made, so
bytes are there before the word that announces them; processors that reorder stores are refused.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Sequence

from conccl.core.errors import InputError
from conccl.transports import futex
from conccl.transports.geometry import HEADER_NBYTES, RECORD_NBYTES, Geometry
from conccl.transports.segment import Segment

COLLECTIVES, MAIL = 0, 1
"""The doors of a rank: each has a bell and a row of sleepers, for its one thread that waits there."""

ANYONE = 0xFFFF
"""Sleeps until anyone rings."""

_ABORT = 64
_ORDERED = ("x86_64", "AMD64")


class Board:
    """One rank's view of the words of its group."""

    def __init__(self, segment: Segment, geometry: Geometry, rank: int, /) -> None:
        if platform.machine() not in _ORDERED:
            raise InputError(
                f"the host transport relies on the order of stores that x86-64 keeps; this is a"
                f" {platform.machine()}. Use gloo."
            )
        self.geometry = geometry
        self.rank = rank
        self._segment = segment
        self._bytes = segment.buffer
        self.words = segment.buffer.cast("Q")
        """The segment as 8-byte words."""
        self._halves = segment.buffer.cast("H")
        self._quarters = segment.buffer.cast("I")
        count = geometry.count
        self.progress = [geometry.rank_line(one, 0) // 8 for one in range(count)]
        """Rank -> index of its word of progress."""
        self._bells = [[geometry.rank_line(one, 1 + door) for one in range(count)] for door in (0, 1)]
        self._rows = [geometry.rows + door * geometry.row_nbytes for door in (0, 1)]
        self._row_words = [range(row // 8, (row + geometry.row_nbytes) // 8) for row in self._rows]
        self._rung = 0
        self.aborted = _ABORT // 8
        """Index of the abort word."""
        self.sleeps_by_bell = futex.available()

    def close(self) -> None:
        """Drop all views."""
        for view in (self.words, self._halves, self._quarters):
            view.release()

    def tell(self, door: int, /) -> None:
        """Wake those that sleep for this rank, after a word of its own has changed."""
        words = self.words
        for index in self._row_words[door]:
            if words[index]:
                self._ring_sleepers(door)
                return

    def _ring_sleepers(self, door: int) -> None:
        first = self._rows[door] // 2
        for one in range(self.geometry.count):
            if self._halves[first + one] in (self.rank + 1, ANYONE):
                self.ring(door, one)

    def tell_one(self, door: int, rank: int, /) -> None:
        """Wake one rank if it sleeps at this door."""
        if self._halves[self._rows[door] // 2 + rank]:
            self.ring(door, rank)

    def ring(self, door: int, rank: int, /) -> None:
        """Ring a rank's bell: its value becomes one that it has not had from anyone."""
        self._rung = (self._rung + 1) & 0x3FFFFF
        bell = self._bells[door][rank]
        self._quarters[bell // 4] = self._rung << 10 | self.rank
        futex.wake(self._segment.address + bell)

    def bell(self, door: int, /) -> int:
        """The value of this rank's own bell."""
        return self._quarters[self._bells[door][self.rank] // 4]

    def lie_down(self, door: int, whom: int, /) -> None:
        """Say that this rank is about to sleep for ``whom`` (a rank, or `ANYONE`)."""
        self._halves[self._rows[door] // 2 + self.rank] = whom if whom == ANYONE else whom + 1

    def get_up(self, door: int, /) -> None:
        """Say that this rank no longer sleeps."""
        self._halves[self._rows[door] // 2 + self.rank] = 0

    def sleep(self, door: int, heard: int, seconds: float, /) -> None:
        """Sleep until the bell has another value than was heard, or so long."""
        futex.wait(self._segment.address + self._bells[door][self.rank], heard, seconds)

    def write_header(self, call: int, body: bytes, /) -> None:
        """Say what this rank's call of this number is."""
        start = self.geometry.header(self.rank, call)
        self._bytes[start + 8 : start + 8 + len(body)] = body
        self.words[start // 8] = call

    def header(self, rank: int, call: int, /) -> bytes | None:
        """What a rank's call of this number is; None if it is no longer known."""
        start = self.geometry.header(rank, call)
        if self.words[start // 8] != call:
            return None
        body = bytes(self._bytes[start + 8 : start + HEADER_NBYTES])
        return body if self.words[start // 8] == call else None

    def introduce(self, pid: int, /) -> None:
        """Say that this rank is there."""
        index = self.geometry.rank_line(self.rank, 3) // 8
        self.words[index + 1] = pid
        self.words[index] = 1

    def show(self, address: int, value: int, /) -> None:
        """Say where in this rank's memory a value lies that peers can try to read."""
        index = self.geometry.rank_line(self.rank, 3) // 8
        self.words[index + 2] = address
        self.words[index + 3] = value

    def shown(self, rank: int, /) -> tuple[int, int] | None:
        """Where a rank's value lies and what it is; None: it has not said so."""
        index = self.geometry.rank_line(rank, 3) // 8
        value = self.words[index + 3]
        return (self.words[index + 2], value) if value else None

    def judge(self, verdict: int, /) -> None:
        """Say whether this rank reads its peers' memory (never 0)."""
        self.words[self.geometry.rank_line(self.rank, 3) // 8 + 4] = verdict

    def verdict(self, rank: int, /) -> int:
        """What a rank has said about it; 0: nothing yet."""
        return self.words[self.geometry.rank_line(rank, 3) // 8 + 4]

    def write_table(self, addresses: Sequence[int], /) -> None:
        """Say where this rank's buffers lie."""
        start = self.geometry.table(self.rank) // 8
        for number, address in enumerate(addresses, start):
            self.words[number] = address

    def table(self, rank: int, /) -> list[int]:
        """Where a rank's buffers lie: scratch, its inputs, its outputs."""
        start = self.geometry.table(rank) // 8
        return self.words[start : start + 1 + 2 * self.geometry.count].tolist()

    def leave(self) -> None:
        """Say that this rank has left the group."""
        self.words[self.geometry.rank_line(self.rank, 3) // 8] = 2

    def is_there(self, rank: int, /) -> bool:
        """Whether a rank has introduced itself (it may have left since)."""
        return self.words[self.geometry.rank_line(rank, 3) // 8] != 0

    def has_left(self, rank: int, /) -> bool:
        """Whether a rank has left the group."""
        return self.words[self.geometry.rank_line(rank, 3) // 8] == 2

    def pid(self, rank: int, /) -> int:
        """A rank's process."""
        return self.words[self.geometry.rank_line(rank, 3) // 8 + 1]

    def abort(self, text: str, /) -> None:
        """End the group: all waits of all ranks end with this reason."""
        data = text.encode()[: RECORD_NBYTES - 8]
        start = self.geometry.record(self.rank)
        if not self.words[start // 8]:
            self._bytes[start + 8 : start + 8 + len(data)] = data
            self.words[start // 8] = len(data)
        self.words[self.aborted] = 1
        for door in (COLLECTIVES, MAIL):
            for one in range(self.geometry.count):
                self.ring(door, one)

    def reasons(self) -> list[tuple[int, str]]:
        """Why the group ended: rank and reason, of those that gave one."""
        found = []
        for one in range(self.geometry.count):
            start = self.geometry.record(one)
            length = self.words[start // 8]
            if length:
                text = bytes(self._bytes[start + 8 : start + 8 + length]).decode(errors="replace")
                found.append((one, text))
        return found


def words_of(*numbers: int) -> bytes:
    """Numbers as 8-byte words."""
    return struct.pack(f"={len(numbers)}Q", *numbers)
