"""Moves mail in the background while nobody waits for it.

A thread of its own is started by the first message that does not go through at once. It leaves the work to
whoever waits for a message: two that sleep at one door would miss their bell.
"""

from __future__ import annotations

import threading
import time

from conccl.core.errors import ExecutionError
from conccl.transports.board import ANYONE, MAIL, Board
from conccl.transports.mail import Mail, Receiving, Sending
from conccl.transports.waiting import Waiting

_GRACE_S = 0.001
"""Whoever posts a message and waits for it at once is faster than a thread that has to be woken."""
_PATIENCE_S = 0.005
_IDLE_S = 0.2
"""After so long without mail the thread sleeps until it is called."""


class Courier:
    """Waits for messages in the foreground, and moves them in the background otherwise."""

    def __init__(self, mail: Mail, waiting: Waiting, board: Board, /) -> None:
        self._mail = mail
        self._waiting = waiting
        self._board = board
        self._thread: threading.Thread | None = None
        self._called = threading.Event()
        self._driving = threading.Lock()
        self._foreground = 0
        self._closed = False

    def watch(self, one: Sending | Receiving, /) -> None:
        """See to it that this message goes through though nobody waits."""
        if one.done:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="conccl-mail", daemon=True)
            self._thread.start()
        if not self._called.is_set():
            self._called.set()

    def wait(self, one: Sending | Receiving, /, *, timeout_s: float | None = None) -> None:
        """Return when this message is through."""
        if one.done:
            return
        self._foreground += 1
        try:
            if not self._driving.acquire(blocking=False):
                self._board.ring(MAIL, self._board.rank)  # the background sleeps there
                while not self._driving.acquire(timeout=_PATIENCE_S):
                    if one.done:  # whoever else waits has brought it
                        return
            try:
                self._mail.wait(one, timeout_s=timeout_s)
            finally:
                self._driving.release()
        finally:
            self._foreground -= 1

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._called.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._board.ring(MAIL, self._board.rank)
            self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._closed:
            if self._mail.outstanding:
                last = time.monotonic()
                time.sleep(_GRACE_S)
                if self._foreground == 0 and not self._drive():
                    return
            elif time.monotonic() - last > _IDLE_S:
                self._called.clear()
                if not self._mail.outstanding:
                    self._called.wait()
                last = time.monotonic()
            else:
                time.sleep(2 * _GRACE_S)

    def _drive(self) -> bool:
        """Move mail until there is none, or someone else does; whether the group goes on."""

        def over() -> bool:
            self._mail.progress()
            return self._closed or self._foreground > 0 or not self._mail.outstanding

        with self._driving:
            try:
                self._waiting.until(
                    over, whom=ANYONE, suspects=(), doing=lambda: "mail", timeout_s=float("inf")
                )
            except ExecutionError:
                return False  # whoever waits for a message finds the same
        return True
