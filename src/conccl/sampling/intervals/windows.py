"""Which parts of a run are wanted in detail, and what was counted in them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conccl.core.errors import ExecutionError
from conccl.sampling.intervals.markers import Marker, Site

COUNTERS = (
    "cycles",
    "instructions",
    "loads",
    "stores",
    "l1i_misses",
    "l1d_misses",
    "l2_misses",
    "branches",
    "branch_misses",
    "multiplies",
    "divides",
    "floats",
    "calls",
)
"""Of the cycle model, in the order of csrc/model.h."""


class Action(enum.IntEnum):
    """What happens at an event; as in enum agent_action."""

    MARK = 0
    FOLLOW = 1
    UNFOLLOW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happens when a marker is reached."""

    marker: Marker | None
    """None: at the start of the program."""
    action: Action
    bound: int
    """The boundary that lies there: b is where interval b begins."""
    before: bool = False
    """It lies before the boundary: caches and predictors are filled from here on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """What the cycle model counted between boundaries."""

    at: dict[int, NDArray[np.int64]]
    """Boundary -> counters (as `COUNTERS`) from the first followed instruction up to there."""

    def has(self, number: int, /) -> bool:
        """Whether an interval was followed from its beginning to its end."""
        return number in self.at and number + 1 in self.at

    def interval(self, number: int, /) -> NDArray[np.int64]:
        """Counters of an interval that was followed from its beginning to its end."""
        if not self.has(number):
            raise ExecutionError(
                f"interval {number} was not reached: the program does not do the same in each run. "
                "Fix its random seeds, its time and its input, and sample it again."
            )
        return self.at[number + 1] - self.at[number]


def events_for(
    chosen: Sequence[int],
    bounds: Sequence[Marker | None],
    /,
) -> list[Event]:
    """Follow each chosen interval and, to fill caches and predictors, the one before it.

    `bounds` holds one marker more than there are intervals, None at both ends of the run. Intervals that
    touch are followed in one go. The end of the program needs no event.
    """
    wanted = set(chosen)
    events = []
    for bound in sorted({*wanted, *(number + 1 for number in wanted)}):
        into, out_of = bound in wanted, bound - 1 in wanted
        if into and not out_of and bound > 0:
            events.append(Event(marker=bounds[bound - 1], action=Action.FOLLOW, bound=bound, before=True))
        if bound == len(bounds) - 1:
            continue
        begins = Action.FOLLOW if bound == 0 else Action.MARK
        events.append(Event(marker=bounds[bound], action=begins if into else Action.UNFOLLOW, bound=bound))
    return _merged(events)


def _merged(events: list[Event]) -> list[Event]:
    """Where the preparation of one interval begins at or before the end of another, go on following."""
    merged: list[Event] = []
    for event in events:
        last = merged[-1] if merged else None
        if (
            event.before
            and last is not None
            and last.action is Action.UNFOLLOW
            and last.marker == event.marker
        ):
            merged[-1] = Event(marker=last.marker, action=Action.MARK, bound=last.bound)
        else:
            merged.append(event)
    return merged


def is_boundary(events: Sequence[Event], number: int, /) -> bool:
    """Whether the event with this number lies at a boundary."""
    return 0 <= number < len(events) and not events[number].before


def sites_of(events: Sequence[Event], /) -> list[Site]:
    """The sites that events need, each once."""
    return list(dict.fromkeys(event.marker.site for event in events if event.marker is not None))
