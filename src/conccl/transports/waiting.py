"""Bounded waits for other ranks: they end with what was waited for, or with an error on every rank.

A wait looks many times, giving its core away in between, and then sleeps until it is rung. While it sleeps it
looks now and then whether the group has been ended, whether those it waits for still live, and how long it
has waited.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial

from conccl.core.errors import DisagreementError, ExecutionError, PeerLostError, WaitTimeoutError
from conccl.transports.board import Board
from conccl.transports.segment import Segment

LOOK_EVERY_S = 0.1
"""How often a sleeper looks whether its peers live: a death is known within two of these."""
_NAPS_S = (0.0005, 0.05)
"""The first and the longest sleep: a bell that is not heard (stores and loads may cross) costs one nap."""
_YIELDS = 200
"""About 100 us of looking, as long as a peer that was asleep takes to wake up and go on. Where nobody else
wants the core this is as quick as mere looking; where the peer shares it, mere looking keeps it away."""

_KINDS: dict[str, type[ExecutionError]] = {
    "lost": PeerLostError,
    "late": WaitTimeoutError,
    "disagree": DisagreementError,
    "ended": ExecutionError,
}


class Peers:
    """Who of the group is still there."""

    def __init__(self, board: Board, segment: Segment, /) -> None:
        self._board = board
        self._segment = segment
        self._mine = os.getpid()

    def why_gone(self, rank: int, /) -> str | None:
        """Why a rank will do nothing more; None if it may."""
        if self._board.has_left(rank):
            return f"rank {rank} has left the group"
        pid = self._board.pid(rank)
        if pid == self._mine or self._segment.is_locked(rank):
            return None
        return f"rank {rank} (process {pid}) has died or exited"


class Waiting:
    """One thread's way to wait at one of its rank's doors."""

    def __init__(self, board: Board, peers: Peers, /, *, door: int, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._board = board
        self._peers = peers
        self._door = door

    def until(
        self,
        ready: Callable[[], bool],
        /,
        *,
        whom: int,
        suspects: Iterable[int],
        doing: Callable[[], str],
        timeout_s: float | None = None,
        one_will_do: bool = False,
    ) -> None:
        """Return when ready; ``whom`` rings, ``suspects`` must live, ``doing`` says what the call is.

        All suspects must live, or one of them if ``one_will_do``.

        Raises the error that ends the group, after telling all ranks of it.
        """
        for _ in range(_YIELDS):
            if ready():
                return
            os.sched_yield()
        limit = self.timeout_s if timeout_s is None else timeout_s
        watch = partial(self._look, ready, tuple(suspects), doing, one_will_do)
        self._sleep(ready, whom=whom, watch=watch, doing=doing, limit=limit)

    def _sleep(
        self,
        ready: Callable[[], bool],
        *,
        whom: int,
        watch: Callable[[], None],
        doing: Callable[[], str],
        limit: float,
    ) -> None:
        board, door = self._board, self._door
        began = looked = time.monotonic()
        nap, longest = _NAPS_S
        try:
            while True:
                heard = board.bell(door)
                board.lie_down(door, whom)
                if ready():
                    return
                self.raise_if_ended()
                now = time.monotonic()
                if now - looked >= LOOK_EVERY_S:
                    looked = now
                    watch()
                if now - began >= limit:
                    self.end("late", f"{doing()} waited {now - began:.1f} s, which is the limit")
                if board.sleeps_by_bell:
                    board.sleep(door, heard, min(nap, limit))
                else:
                    time.sleep(min(nap, 0.002))
                nap = min(2 * nap, longest)
        finally:
            board.get_up(door)

    def _look(
        self,
        ready: Callable[[], bool],
        suspects: tuple[int, ...],
        doing: Callable[[], str],
        one_will_do: bool,
    ) -> None:
        gone = [reason for reason in map(self._peers.why_gone, suspects) if reason is not None]
        enough = len(gone) < len(suspects) if one_will_do else not gone
        if not enough and not ready():  # what they did before they went still counts
            self.end("lost", f"{', '.join(gone)}; {doing()} waits for it")

    def await_end(self, rank: int, /, *, doing: Callable[[], str], seconds: float) -> None:
        """Raise as soon as it is known that a rank is gone or the group ended; return after so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.raise_if_ended()
            self._look(lambda: False, (rank,), doing, False)
            time.sleep(0.002)

    def raise_if_ended(self) -> None:
        """Raise what ended the group, if something has."""
        board = self._board
        if not board.words[board.aborted]:
            return
        for rank, reason in board.reasons():
            kind, _, text = reason.partition(":")
            told = "" if rank == board.rank else f" (told by rank {rank})"
            raise _KINDS.get(kind, ExecutionError)(f"{text}{told}")
        raise ExecutionError("the group has been ended.")

    def end(self, kind: str, text: str, /) -> None:
        """End the group on all ranks, and raise.

        What has ended it already counts instead: this may follow from it.
        """
        self.raise_if_ended()
        self._board.abort(f"{kind}:{text}")
        self.raise_if_ended()
