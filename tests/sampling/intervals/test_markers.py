"""Where slices of a native run are parted: at the first execution of a site behind the boundary."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from conccl.sampling.intervals.counters import Backend
from conccl.sampling.intervals.cut import cut
from conccl.sampling.intervals.markers import FREQUENT, RARE, Site, SiteKind, place_boundaries
from conccl.sampling.intervals.native import Slices
from conccl.sampling.intervals.program import Ended


def sites(count: int) -> tuple[Site, ...]:
    return tuple(Site(path="/bin/x", pc=16 * i, kind=SiteKind.CALL) for i in range(count))


def slices(increases: list[list[int]], *, lengths: list[int] | None = None) -> Slices:
    counts = np.array(increases, np.int64)
    return Slices(
        backend=Backend.CLOCK,
        sites=sites(counts.shape[1]),
        increases=sparse.csr_array(counts),
        pcs=np.arange(len(counts), dtype=np.uint64) * np.uint64(4096),
        lengths=np.array(lengths or [1000] * len(counts), np.int64),
        extras=np.zeros((len(counts), 0), np.int64),
        forks=0,
        ended=Ended(wall_ns=1, cpu_ns=1),
    )


def test_a_marker_is_the_first_execution_behind_the_boundary() -> None:
    markers = place_boundaries(sparse.csr_array(np.array([[50], [60], [70]])), sites(1))
    assert [marker and marker.count for marker in markers] == [51, 111]


def test_one_site_serves_all_boundaries_where_it_can() -> None:
    increases = np.array([[90, 40, 0], [0, 45, 80], [70, 50, 90]])
    markers = place_boundaries(sparse.csr_array(increases), sites(3))
    assert {marker.site.pc for marker in markers if marker} == {16}


def test_a_site_that_executes_too_often_is_left_to_others() -> None:
    increases = np.array([[10 * FREQUENT, 2 * RARE], [10 * FREQUENT, 2 * RARE]])
    (marker,) = place_boundaries(sparse.csr_array(increases), sites(2))
    assert marker is not None
    assert marker.site.pc == 16


def test_a_boundary_that_nothing_crosses_has_no_marker() -> None:
    assert place_boundaries(sparse.csr_array(np.array([[90, 0], [0, 90]])), sites(2)) == [None]


@settings(max_examples=60)
@given(arrays(np.int64, st.tuples(st.integers(1, 7), st.integers(1, 4)), elements=st.integers(0, 90)))
def test_markers_come_in_the_order_of_the_run(increases: np.ndarray) -> None:
    found = place_boundaries(sparse.csr_array(increases), sites(increases.shape[1]))
    running = np.cumsum(increases, axis=0)
    for end, marker in enumerate(found):
        if marker is None:
            assert not (np.minimum(increases[end], increases[end + 1]) > 0).any()
            continue
        column = marker.site.pc // 16
        assert running[end, column] < marker.count <= running[end + 1, column]


def test_slices_that_no_marker_parts_are_joined() -> None:
    found = cut(slices([[90, 0], [0, 90], [0, 80]], lengths=[100, 300, 600]))
    assert found.count == 2
    assert found.lengths.tolist() == [400, 600]
    assert found.increases.toarray().tolist() == [[90, 90], [0, 80]]
    assert found.vectors.toarray()[0, :2].tolist() == [0.25, 0.75]  # as long as each took
    assert [bound is None for bound in found.bounds] == [True, False, True]


def test_a_slice_without_executions_is_told_by_its_place() -> None:
    found = cut(slices([[90], [90], [1], [90]]))
    assert np.allclose(found.vectors.sum(axis=1), 1)
    kept = found.vectors.toarray()
    assert kept[0].argmax() == kept[1].argmax() == 0
    assert kept[2].argmax() != 0
