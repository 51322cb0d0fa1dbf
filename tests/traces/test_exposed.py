from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.timeline import Activity
from conccl.traces.breakdown import sides_of
from conccl.traces.exposed import exposed_communication
from conccl.traces.findings import ExposedCommunication
from made_traces import Row, made_timeline

US = 1000


def network(name: str, start: int, end: int, launch: int = -1, step: int = -1) -> Row:
    return Row(
        name=name,
        start=start,
        end=end,
        stream="20",
        activity=Activity.COMMUNICATION,
        launch=launch,
        step=step,
    )


def exposed_in(rows: list[Row], *, keep: int = 32) -> tuple[ExposedCommunication, ...]:
    timeline = made_timeline(rows)
    origin = min((row.start for row in rows), default=0)
    return exposed_communication(
        timeline, every=sides_of(timeline), rank=1, origin_ns=origin, keep=keep
    ).findings


def test_an_exposed_collective_is_named_with_its_neighbours() -> None:
    (found,) = exposed_in(
        [
            Row(name="backward", start=10 * US, end=100 * US),
            network("all_reduce", 60 * US, 160 * US, step=4),
            Row(name="optimizer", start=165 * US, end=200 * US),
        ]
    )
    assert (found.rank, found.step, found.name, found.calls) == (1, 4, "all_reduce", 1)
    assert (found.exposed_ns, found.start_ns, found.stretch_ns) == (60 * US, 90 * US, 60 * US)
    assert (found.before, found.after) == ("backward", "optimizer")
    assert (found.candidate, found.candidate_ns, found.evidence) == (None, None, None)


def test_calls_between_the_same_kernels_are_one_finding() -> None:
    rows = []
    for i, length in enumerate((10, 30, 20)):
        at = i * 1000 * US
        rows += [
            Row(name="a", start=at, end=at + 100 * US),
            network("gather", at + 100 * US, at + (100 + length) * US),
            Row(name="b", start=at + (100 + length) * US, end=at + 300 * US),
        ]
    (found,) = exposed_in(rows)
    assert (found.calls, found.exposed_ns, found.stretch_ns) == (3, 60 * US, 30 * US)
    assert found.start_ns == 1100 * US


def test_communication_at_either_end_has_one_neighbour() -> None:
    first, last = exposed_in(
        [
            network("first", 0, 50 * US),
            Row(name="a", start=60 * US, end=100 * US),
            network("last", 110 * US, 140 * US),
        ]
    )
    assert (first.before, first.after) == (None, "a")
    assert (last.before, last.after) == ("a", None)


def test_hidden_communication_is_not_listed() -> None:
    rows = [Row(name="a", start=0, end=100), network("hidden", 10, 90)]
    assert exposed_in(rows) == ()
    assert exposed_in([]) == ()


def test_a_kernel_that_overtook_the_collective_is_a_candidate() -> None:
    """Launched later, done earlier: the collective had been queued behind other communication."""
    (found,) = exposed_in(
        [
            Row(name="producer", start=0, end=100 * US, launch=0),
            Row(name="overtaker", start=100 * US, end=400 * US, launch=20 * US),
            network("all_reduce", 400 * US, 600 * US, launch=10 * US),
            Row(name="next", start=600 * US, end=700 * US, launch=30 * US),
        ]
    )
    assert (found.candidate, found.candidate_ns) == ("overtaker", 300 * US)
    assert found.evidence is not None
    assert "neither feeds it nor waits for it" in found.evidence


def test_a_collective_launched_late_might_run_beside_the_kernel_before() -> None:
    """Parameters gathered without prefetch: the host launched the gather when the GEMM was done."""
    (found,) = exposed_in(
        [
            Row(name="gemm", start=0, end=300 * US, launch=0),
            network("all_gather", 310 * US, 500 * US, launch=302 * US),
            Row(name="next", start=500 * US, end=700 * US, launch=303 * US),
        ]
    )
    assert found.candidate == "gemm"
    assert found.evidence is not None
    assert "does not show" in found.evidence


def test_a_collective_that_waited_for_the_kernel_before_has_no_candidate() -> None:
    """Launched long before: it waited on the GPU, so the kernel before may feed it."""
    (found,) = exposed_in(
        [
            Row(name="gemm", start=0, end=300 * US, launch=0),
            network("all_reduce", 301 * US, 500 * US, launch=20 * US),
            Row(name="next", start=500 * US, end=700 * US, launch=30 * US),
        ]
    )
    assert found.candidate is None


spans = st.lists(
    st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 150), st.integers(0, 40)),
    min_size=1,
    max_size=20,
)


@given(spans)
def test_exposures_are_the_moments_without_compute(items: list[tuple[bool, int, int, int]]) -> None:
    rows = [
        network(f"send{stream}", start, start + length)
        if is_network
        else Row(name="gemm", start=start, end=start + length, stream=str(stream))
        for is_network, stream, start, length in items
    ]
    computing = np.zeros(200, dtype=bool)
    for row in rows:
        if row.activity is Activity.COMPUTE:
            computing[row.start : row.end] = True
    expected = sum(
        int((~computing[row.start : row.end]).sum()) for row in rows if row.activity is Activity.COMMUNICATION
    )
    found = exposed_in(rows)
    assert sum(each.exposed_ns for each in found) == expected
    origin = min(row.start for row in rows)
    for each in found:
        start = each.start_ns + origin
        assert not computing[start : start + each.stretch_ns].any()
        assert 0 < each.stretch_ns <= each.exposed_ns


def test_no_more_can_be_covered_than_there_is_compute() -> None:
    timeline = made_timeline([Row(name="a", start=0, end=20), network("send", 20, 120)])
    found = exposed_communication(
        timeline,
        every=sides_of(timeline),
        rank=0,
        origin_ns=0,
        coverable=np.full(len(timeline), 0.2),
    )
    assert [(each.exposed_ns, each.coverable_ns) for each in found.findings] == [(100, 20)]
