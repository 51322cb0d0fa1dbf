"""What is followed: the chosen intervals, and something before each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.errors import ExecutionError
from conccl.sampling.intervals.markers import Marker, Site, SiteKind
from conccl.sampling.intervals.windows import COUNTERS, Action, Detail, Event, events_for, is_boundary

SITE = Site(path="/bin/x", pc=0, kind=SiteKind.CALL)
INTERVALS = 8
BOUNDS = (None, *(Marker(site=SITE, count=10 * i) for i in range(1, INTERVALS)), None)


def shape(events: list[Event]) -> list[tuple[int, str]]:
    return [(event.marker.count if event.marker else 0, event.action.name) for event in events]


def test_the_interval_before_is_followed_too() -> None:
    assert shape(events_for([3], BOUNDS)) == [(20, "FOLLOW"), (30, "MARK"), (40, "UNFOLLOW")]


def test_neighbours_are_followed_in_one_go() -> None:
    assert shape(events_for([3, 4], BOUNDS)) == [
        (20, "FOLLOW"), (30, "MARK"), (40, "MARK"), (50, "UNFOLLOW"),
    ]  # fmt: skip


def test_where_one_ends_the_preparation_of_the_next_may_begin() -> None:
    assert shape(events_for([2, 4], BOUNDS)) == [
        (10, "FOLLOW"), (20, "MARK"), (30, "MARK"), (40, "MARK"), (50, "UNFOLLOW"),
    ]  # fmt: skip


def test_the_first_interval_begins_with_the_program_and_the_last_ends_with_it() -> None:
    assert shape(events_for([0], BOUNDS)) == [(0, "FOLLOW"), (10, "UNFOLLOW")]
    assert shape(events_for([7], BOUNDS)) == [(60, "FOLLOW"), (70, "MARK")]


@given(st.sets(st.integers(0, INTERVALS - 1), min_size=1))
def test_every_chosen_interval_lies_between_follow_and_unfollow(chosen: set[int]) -> None:
    following, covered = False, set()
    at: dict[int, bool] = {}
    events = events_for(sorted(chosen), BOUNDS)
    for number, event in enumerate(events):
        assert (event.action is Action.FOLLOW) != following  # never twice, and nothing else while it is off
        following = event.action is not Action.UNFOLLOW
        if is_boundary(events, number):
            at[event.bound] = following
    at[INTERVALS] = False
    for interval in chosen:
        assert at[interval]
        assert interval + 1 in at
        covered.add(interval)
    assert covered == chosen


def test_an_interval_that_was_not_reached_is_named() -> None:
    detail = Detail(at={1: np.zeros(len(COUNTERS), np.int64)})
    with pytest.raises(ExecutionError, match="interval 1 was not reached"):
        detail.interval(1)
