"""Transfers that begin when counters are full, and the watchdog that lets none of them wait for ever.

A stream that waits for a word has no time limit of its own. So each call that is under way has a deadline;
when it passes, the watchdog notes which chunks are short of how many tiles, sets their counters full (the
stream goes on, and what it moves from then on is garbage) and the call ends in an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from conccl.core.errors import WaitTimeoutError
from conccl.gpu.tracking.driver import Driver

POLL_S = 0.005
"""How often the watchdog looks."""

TIMEOUT_S = 60.0
"""How long a call may take where its caller says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Words of device memory, one a chunk, and the value at which each is full."""

    address: int
    full: tuple[int, ...]

    def of(self, chunk: int, /) -> int:
        """The address of a chunk's word."""
        return self.address + 4 * chunk


class Call:
    """One call whose transfers wait for counters; made by `Watchdog.call`."""

    def __init__(
        self, driver: Driver, /, *, name: str, rank: int, counters: Counters, stream: int, rescue: int
    ) -> None:
        self._driver = driver
        self._counters = counters
        self._stream = stream
        self._rescue = rescue
        self._name = name
        self._rank = rank
        self._is_done: Callable[[], bool] | None = None
        self._over = threading.Event()
        self._error: Exception | None = None
        self.deadline = float("inf")

    def after(self, chunk: int, transfer: Callable[[], None], /) -> None:
        """Put a transfer behind the wait for a chunk, on the call's stream."""
        self._driver.wait_until(self._stream, self._counters.of(chunk), self._counters.full[chunk])
        transfer()

    def issued(self, *, deadline: float) -> None:
        """All is enqueued; from here on the watchdog looks after it."""
        self._is_done = self._driver.record(self._stream)
        self.deadline = deadline

    def check(self, *, now: float) -> bool:
        """Whether the call is over; past its deadline it is released and over."""
        assert self._is_done is not None
        try:
            if not self._is_done():
                if now < self.deadline:
                    return False
                self._error = self._released()
        except Exception as error:  # it belongs to whoever waits
            self._error = error
        self._over.set()
        return True

    def wait(self) -> None:
        """Until the call is over; raises its error. The watchdog's deadline bounds this."""
        self._over.wait()
        self.raise_error()

    def raise_error(self) -> None:
        """Raise what the call failed with, if it did."""
        if self._error is not None:
            raise self._error

    def _released(self) -> WaitTimeoutError:
        """Let the stream go on, and say what it waited for."""
        full = self._counters.full
        counts = self._driver.read(self._rescue, self._counters.address, len(full))
        short = [chunk for chunk, count in enumerate(counts) if count < full[chunk]]
        for chunk in short:
            self._driver.write(self._rescue, self._counters.of(chunk), full[chunk])
        waited = self._name + f", rank {self._rank}"
        if not short:
            return WaitTimeoutError(
                f"{waited}: all chunks were made, and their transfers were not complete in time. A peer is"
                " late or gone; its own error says why."
            )
        first = short[0]
        return WaitTimeoutError(
            f"{waited}: chunk {first} of {len(full)} had {counts[first]} of {full[first]} tiles when the time"
            f" was up; {len(short)} chunks were short. The GEMM is stuck, or slower than the timeout; what"
            " was moved is not valid."
        )


class Watchdog:
    """Looks after calls that are under way, in a thread that runs while there are any."""

    def __init__(
        self,
        driver: Driver,
        /,
        *,
        timeout_s: float = TIMEOUT_S,
        poll_s: float = POLL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.driver = driver
        self.timeout_s = timeout_s
        self._poll_s = poll_s
        self._clock = clock
        self._calls: list[Call] = []
        self._failed: list[Call] = []
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def call(self, name: str, /, *, rank: int, counters: Counters, stream: int, rescue: int) -> Call:
        """A new call, unless an earlier one has failed: then that one's error."""
        self.raise_failed()
        return Call(self.driver, name=name, rank=rank, counters=counters, stream=stream, rescue=rescue)

    def watch(self, call: Call, /) -> None:
        """Look after a call from now on; its time begins here."""
        call.issued(deadline=self._clock() + self.timeout_s)
        with self._lock:
            self._calls.append(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="conccl-watchdog", daemon=True)
                self._thread.start()

    def raise_failed(self) -> None:
        """Raise the error of a call that failed since this was last asked."""
        with self._lock:
            failed = self._failed.pop(0) if self._failed else None
        if failed is not None:
            failed.raise_error()

    def _run(self) -> None:
        while True:
            now = self._clock()
            with self._lock:
                calls = tuple(self._calls)
            over = [call for call in calls if call.check(now=now)]
            with self._lock:
                for call in over:
                    self._calls.remove(call)
                    if call._error is not None:
                        self._failed.append(call)
                if not self._calls:
                    self._thread = None
                    return
            time.sleep(self._poll_s)
