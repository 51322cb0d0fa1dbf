from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from conccl.traces.breakdown import sides
from conccl.traces.states import STATES, states_of

rows = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(0, 3)), max_size=12)


def moment(drawn: list[tuple[int, int, int]], at: int) -> str:
    """What a moment is, said from first principles."""
    running = {activity for start, length, activity in drawn if start <= at < start + length}
    compute, communication = bool(running & {0, 2}), bool(running & {1, 2})
    if compute and communication:
        return "both"
    if compute:
        return "compute_only"
    if communication:
        return "communication_only"
    return "copy_only" if 3 in running else "idle"


@given(rows, st.integers(0, 20), st.integers(1, 25))
def test_every_moment_has_the_state_that_its_rows_make(
    drawn: list[tuple[int, int, int]], begin: int, length: int
):
    table = np.array(drawn, dtype=np.int64).reshape(-1, 3)
    found = states_of(
        sides(start_ns=table[:, 0], end_ns=table[:, 0] + table[:, 1], activity=table[:, 2].astype(np.int8)),
        start_ns=begin,
        end_ns=begin + length,
    )
    assert found.start_ns[0] == begin
    assert found.end_ns[-1] == begin + length
    assert np.array_equal(found.start_ns[1:], found.end_ns[:-1])
    assert not np.any(found.state[1:] == found.state[:-1])
    for at in range(begin, begin + length):
        place = int(np.searchsorted(found.end_ns, at, side="right"))
        assert STATES[found.state[place]] == moment(drawn, at)


def test_a_window_without_rows_is_idle():
    nothing = np.empty(0, dtype=np.int64)
    found = states_of(
        sides(start_ns=nothing, end_ns=nothing, activity=nothing.astype(np.int8)), start_ns=5, end_ns=9
    )
    assert (found.start_ns.tolist(), found.end_ns.tolist()) == ([5], [9])
    assert [STATES[state] for state in found.state] == ["idle"]


def test_an_empty_window_has_no_states():
    nothing = np.empty(0, dtype=np.int64)
    found = states_of(
        sides(start_ns=nothing, end_ns=nothing, activity=nothing.astype(np.int8)), start_ns=5, end_ns=5
    )
    assert len(found.state) == len(found.start_ns) == len(found.end_ns) == 0
