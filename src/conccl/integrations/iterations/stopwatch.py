"""Times of steps: by CUDA events that are read once they have passed, or by the clock."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

Done = tuple[Any, float]
"""What a step was stopped with, and its time in ms."""


class Stopwatch(Protocol):
    """Times steps that follow each other."""

    def start(self) -> None:
        """A step begins; one that was begun and not stopped is forgotten."""
        ...

    def stop(self, what: Any, /) -> None:
        """The step ends."""
        ...

    def done(self, *, wait: bool) -> Iterator[Done]:
        """Steps whose times are known by now, or all of them, in order; each is told once."""
        ...


def stopwatch_for(device: str | torch.device | None, /) -> Stopwatch:
    """Events for a GPU, the clock otherwise; None: a GPU where the process uses one by now."""
    return Events(event=_timing_event) if is_gpu(device) else Clock()


def is_gpu(device: str | torch.device | None, /) -> bool:
    """Whether this is a GPU; None: whether the process uses one by now."""
    if device is None:
        return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    return torch.device(device).type == "cuda"


class Clock:
    """The clock of the host: right where steps are done when they return."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._done: list[Done] = []

    def start(self) -> None:
        """Look at the clock."""
        self._began_ns = time.perf_counter_ns()

    def stop(self, what: Any, /) -> None:
        """Look at it again."""
        self._done.append((what, (time.perf_counter_ns() - self._began_ns) / 1e6))

    def done(self, *, wait: bool) -> Iterator[Done]:  # noqa: ARG002
        """All of them."""
        found, self._done = self._done, []
        return iter(found)


class Events:
    """An event before and one behind each step on the current stream; the host never waits within a run.

    A step's time is from when the stream reached its beginning until it reached its end: what the clock would
    show were the GPU waited for, without the waiting.
    """

    def __init__(self, *, event: Callable[[], Any]) -> None:
        self._event = event
        self._spare: list[Any] = []
        self._open: Any = None
        self._passing: deque[tuple[Any, Any, Any]] = deque()

    def start(self) -> None:
        """Put the first event into the stream."""
        if self._open is None:
            self._open = self._new()
        self._open.record()

    def stop(self, what: Any, /) -> None:
        """Put the second event into the stream."""
        end = self._new()
        end.record()
        self._passing.append((what, self._open, end))
        self._open = None

    def done(self, *, wait: bool) -> Iterator[Done]:
        """Those whose second event has passed."""
        while self._passing:
            what, begin, end = self._passing[0]
            if wait:
                end.synchronize()
            elif not end.query():
                return
            self._passing.popleft()
            self._spare += (begin, end)
            yield what, float(begin.elapsed_time(end))

    def _new(self) -> Any:
        return self._spare.pop() if self._spare else self._event()


def _timing_event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
