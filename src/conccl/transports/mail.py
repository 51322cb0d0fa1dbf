"""send and recv: messages with tags through a ring of bytes for each ordered pair of ranks.

Who sends what is not known before it happens, so no fragment says it; a ring is `staged.send` with two ends
that do not wait for each other: the sender copies in what fits, the receiver copies out what is there. A
message is a header and its bytes. Messages of one sender arrive in the order in which they were sent; a
receiver takes the first with its tag. One that nobody has asked for stays in the ring, and its sender waits,
until something else of the same sender is asked for: then it is put aside.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from conccl.transports.board import ANYONE, MAIL, Board, words_of
from conccl.transports.geometry import LINE, Geometry
from conccl.transports.segment import Segment
from conccl.transports.waiting import Waiting

ANY = -1
"""A receive from whoever sends first."""
_CHUNK = 64 * 1024
"""Bytes copied before the other end is told: both ends of a ring work at once on a large message."""


@dataclass(slots=True, eq=False)
class Sending:
    """A message on its way out."""

    rank: int
    tag: int
    address: int
    nbytes: int
    dtype: str
    began: bool = False
    sent: int = 0
    done: bool = False
    keep: object = None
    """What must live until then."""

    def __str__(self) -> str:
        return f"send of {self.nbytes} bytes of {self.dtype} to rank {self.rank} with tag {self.tag}"


@dataclass(slots=True, eq=False)
class Receiving:
    """A message that is asked for."""

    rank: int
    """Of the sender, or `ANY`; the sender's when done."""
    tag: int
    address: int
    nbytes: int
    dtype: str
    done: bool = False
    keep: object = None

    def __str__(self) -> str:
        whom = "any rank" if self.rank == ANY else f"rank {self.rank}"
        return f"recv of {self.nbytes} bytes of {self.dtype} from {whom} with tag {self.tag}"


@dataclass(slots=True)
class _Arriving:
    """A message at the front of a ring."""

    tag: int
    nbytes: int
    dtype: str
    got: int = 0
    asked: Receiving | None = None
    aside: ctypes.Array[ctypes.c_char] | None = None

    def address(self) -> int:
        return self.asked.address if self.asked is not None else ctypes.addressof(self.aside)  # type: ignore[arg-type]


@dataclass(slots=True)
class _Inbox:
    """What one sender has for this rank."""

    front: _Arriving | None = None
    aside: list[_Arriving] = field(default_factory=list)


class Mail:
    """One rank's sends and receives. Any thread may post and wait; one at a time moves bytes."""

    def __init__(
        self,
        segment: Segment,
        geometry: Geometry,
        board: Board,
        waiting: Waiting,
        /,
        *,
        name: Callable[[], str],
    ) -> None:
        self.rank = board.rank
        self._segment = segment
        self._geometry = geometry
        self._board = board
        self._waiting = waiting
        self._name = name
        self._room = geometry.mail_nbytes
        self._lock = threading.Lock()
        self._outboxes: dict[int, deque[Sending]] = {}
        self._asked: list[Receiving] = []
        self._inboxes = {rank: _Inbox() for rank in range(geometry.count) if rank != self.rank}

    @property
    def outstanding(self) -> bool:
        """Whether anything is on its way."""
        return bool(self._asked) or any(self._outboxes.values()) or self._is_coming()

    def post_send(
        self, rank: int, /, *, tag: int, address: int, nbytes: int, dtype: str, keep: object
    ) -> Sending:
        """Send bytes, after all that was sent to this rank before. Small messages are done at once."""
        one = Sending(rank=rank, tag=tag, address=address, nbytes=nbytes, dtype=dtype, keep=keep)
        with self._lock:
            self._outboxes.setdefault(rank, deque()).append(one)
            self._push(rank)
        return one

    def post_receive(
        self, rank: int, /, *, tag: int, address: int, nbytes: int, dtype: str, keep: object
    ) -> Receiving:
        """Ask for the next message with this tag, of one rank or of `ANY`."""
        one = Receiving(rank=rank, tag=tag, address=address, nbytes=nbytes, dtype=dtype, keep=keep)
        with self._lock:
            if not self._take_aside(one):
                self._asked.append(one)
                for source in self._inboxes if rank == ANY else (rank,):
                    self._pull(source)
        return one

    def progress(self) -> bool:
        """Move what can be moved now; whether anything was."""
        moved = False
        with self._lock:
            for rank, queue in self._outboxes.items():
                if queue:
                    moved |= self._push(rank)
            for rank, inbox in self._inboxes.items():
                if self._asked or inbox.front is not None:
                    moved |= self._pull(rank)
        return moved

    def _is_coming(self) -> bool:
        return any(inbox.front is not None for inbox in self._inboxes.values())

    def wait(self, one: Sending | Receiving, /, *, timeout_s: float | None = None) -> None:
        """Move bytes until this message is through. Raises what ends the group."""

        def ready() -> bool:
            return one.done or (self.progress() and one.done)

        others = [rank for rank in self._inboxes if one.rank in (rank, ANY)]
        self._waiting.until(
            ready,
            whom=ANYONE,
            suspects=others,
            one_will_do=one.rank == ANY,
            doing=lambda: f"group {self._name()!r}: {one} by rank {self.rank}",
            timeout_s=timeout_s,
        )

    def _push(self, rank: int) -> bool:
        """Copy into the ring to this rank what fits."""
        queue, words = self._outboxes[rank], self._board.words
        start = self._geometry.ring(self.rank, rank)
        written, read = start // 8, (start + LINE) // 8
        at = before = words[written]
        while queue:
            one = queue[0]
            room = self._room - (at - words[read])
            if not one.began:
                if room < LINE:
                    break
                self._put_header(start, at, one)
                one.began = True
                at += LINE
                room -= LINE
            nbytes = min(one.nbytes - one.sent, room, _CHUNK)
            if nbytes:
                self._copy(start, at, one.address + one.sent, nbytes, inward=False)
                one.sent += nbytes
                at += nbytes if one.sent < one.nbytes else _padded(at + nbytes) - at
            words[written] = at
            self._board.tell_one(MAIL, rank)
            if one.sent < one.nbytes:
                if nbytes == 0:
                    break
            else:
                one.done, one.keep = True, None
                queue.popleft()
        return at != before

    def _pull(self, rank: int) -> bool:
        """Copy out of the ring from this rank what is asked for."""
        inbox, words = self._inboxes[rank], self._board.words
        start = self._geometry.ring(rank, self.rank)
        written, read = start // 8, (start + LINE) // 8
        at = before = words[read]
        while True:
            front = inbox.front
            if front is None:
                if words[written] - at < LINE or not self._is_asked(rank):
                    break
                front = self._header(start, at)
                self._match(front, rank)  # may end the group: the message stays where it is
                inbox.front = front
                at += LINE
            nbytes = min(front.nbytes - front.got, words[written] - at, _CHUNK)
            if nbytes:
                self._copy(start, at, front.address() + front.got, nbytes, inward=True)
                front.got += nbytes
                at += nbytes if front.got < front.nbytes else _padded(at + nbytes) - at
            words[read] = at
            self._board.tell_one(MAIL, rank)
            if front.got < front.nbytes:
                if nbytes == 0:
                    break
            else:
                inbox.front = None
                self._arrived(front, rank)
        return at != before

    def _is_asked(self, rank: int) -> bool:
        return any(one.rank in (rank, ANY) for one in self._asked)

    def _match(self, front: _Arriving, rank: int) -> None:
        """Give a message to the first who asked for it, or put it aside."""
        for one in self._asked:
            if one.rank in (rank, ANY) and one.tag == front.tag:
                self._check(one, front, rank)
                self._asked.remove(one)
                front.asked = one
                one.rank = rank
                return
        front.aside = (ctypes.c_char * max(1, front.nbytes))()

    def _arrived(self, front: _Arriving, rank: int) -> None:
        if front.asked is not None:
            front.asked.done, front.asked.keep = True, None
            return
        self._inboxes[rank].aside.append(front)
        for one in list(self._asked):  # someone may have asked while it was coming in
            if one.rank in (rank, ANY) and one.tag == front.tag:
                self._asked.remove(one)
                self._take_aside(one)
                return

    def _take_aside(self, one: Receiving) -> bool:
        """Whether a message that was put aside is the one; then it is received."""
        for rank, inbox in self._inboxes.items():
            if one.rank not in (rank, ANY):
                continue
            for front in inbox.aside:
                if front.tag == one.tag:
                    self._check(one, front, rank)
                    inbox.aside.remove(front)
                    ctypes.memmove(one.address, front.address(), front.nbytes)
                    one.rank, one.done, one.keep = rank, True, None
                    return True
        return False

    def _check(self, one: Receiving, front: _Arriving, rank: int) -> None:
        if (one.nbytes, one.dtype) != (front.nbytes, front.dtype):
            self._waiting.end(
                "disagree",
                f"group {self._name()!r}: rank {self.rank} issued {one}; rank {rank} issued"
                f" send of {front.nbytes} bytes of {front.dtype} with this tag. Both must be equal",
            )

    def _put_header(self, start: int, at: int, one: Sending) -> None:
        name = one.dtype.encode()[:32].ljust(32, b"\0")
        data = words_of(one.tag & (1 << 64) - 1, one.nbytes) + name
        first = start + 2 * LINE + at % self._room
        self._segment.buffer[first : first + len(data)] = data

    def _header(self, start: int, at: int) -> _Arriving:
        first = start + 2 * LINE + at % self._room
        data = bytes(self._segment.buffer[first : first + LINE])
        return _Arriving(
            tag=int.from_bytes(data[:8], "little", signed=True),
            nbytes=int.from_bytes(data[8:16], "little"),
            dtype=data[16:48].rstrip(b"\0").decode(),
        )

    def _copy(self, start: int, at: int, address: int, nbytes: int, *, inward: bool) -> None:
        """Between the ring and memory, in two pieces where the ring ends."""
        ring = self._segment.address + start + 2 * LINE
        while nbytes:
            place = at % self._room
            piece = min(nbytes, self._room - place)
            if inward:
                ctypes.memmove(address, ring + place, piece)
            else:
                ctypes.memmove(ring + place, address, piece)
            at, address, nbytes = at + piece, address + piece, nbytes - piece


def _padded(at: int) -> int:
    return -(-at // LINE) * LINE
