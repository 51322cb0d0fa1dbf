"""The clock and the heap of a simulation: events happen in order of time, priority and arrival.

The whole state of time is here. An event is a plain action at an integer nanosecond; equal times are broken
by priority and then by the order of scheduling, so that a simulation has one outcome.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]

URGENT = 0
"""Ends and arrivals: they change what runs."""
SETTLE = 1
"""What looks at the outcome of all changes of an instant, once."""


class Event:
    """An action that is going to happen, has happened, or was cancelled.

    Cancelling an event that has happened does nothing.
    """

    __slots__ = ("action", "at_ns")

    def __init__(self, *, at_ns: int, action: Action) -> None:
        self.at_ns = at_ns
        self.action: Action | None = action

    def cancel(self) -> None:
        """Make sure that it does not happen."""
        self.action = None


class Engine:
    """Runs events until none is left."""

    def __init__(self) -> None:
        self.now_ns = 0
        """The time of the event that happens now."""
        self._heap: list[tuple[int, int, int, Event]] = []
        self._sequence = count()

    def schedule(self, action: Action, /, *, at_ns: int, priority: int = URGENT) -> Event:
        """Let the action happen then; a time that has passed is a mistake of the caller."""
        if at_ns < self.now_ns:
            raise ValueError(f"an event at {at_ns} ns would lie before now, {self.now_ns} ns.")
        event = Event(at_ns=at_ns, action=action)
        heapq.heappush(self._heap, (at_ns, priority, next(self._sequence), event))
        return event

    def step(self) -> bool:
        """Let the next event happen; False where none is left."""
        while self._heap:
            at_ns, _, _, event = heapq.heappop(self._heap)
            if event.action is None:
                continue
            self.now_ns = at_ns
            action, event.action = event.action, None
            action()
            return True
        return False

    def run(self) -> int:
        """Let all events happen; the time of the last."""
        while self.step():
            pass
        return self.now_ns
