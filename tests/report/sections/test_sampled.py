"""Pages of what was sampled: sections say what the records say, for ordinary and for odd runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.errors import InputError
from conccl.report.blocks import DataTable, Figures, Lines, Notes
from conccl.report.page import Page, render_page
from conccl.report.plots import DensityMap, Histogram, PhaseChart
from conccl.report.sections.chosen_kernels import chosen_kernels
from conccl.report.sections.phases import FINEST, Phases, phases
from conccl.report.sections.seqpoints import seqpoints
from conccl.sampling.kernels import sample_kernels
from conccl.sampling.logs import IterationLog
from conccl.sampling.study import Study, study_run


def studied(lengths: np.ndarray, times: np.ndarray, names: tuple[str, ...] = ("length",)) -> Study:
    log = IterationLog(
        iteration=np.arange(len(lengths)), length=lengths, statistics={"time_ms": times}, names=names
    )
    return study_run(log)


def one_length(count: int = 900) -> Study:
    lengths = 8 * np.random.default_rng(2).integers(1, 90, (count, 1))
    return studied(lengths, 3.0 + lengths[:, 0] ** 1.5)


def html_of(sections: tuple) -> str:
    return render_page(Page(title="t", subtitle="s", sections=sections))


def test_every_iteration_is_in_a_bar_and_every_point_is_marked() -> None:
    study = one_length()
    headline, lengths, errors = seqpoints(study)
    assert isinstance(headline.blocks[0], Figures)
    table, histogram, lines = headline.blocks[1], lengths.blocks[0], errors.blocks[0]
    assert isinstance(table, DataTable)
    assert isinstance(histogram, Histogram)
    assert isinstance(lines, Lines)
    assert len(table.rows) == len(histogram.marks) == len(study.selection.seqpoints)
    assert sum(bucket.height for bucket in histogram.buckets) == 900
    assert sum(mark.share for mark in histogram.marks) == pytest.approx(1)
    assert histogram.buckets[0].high - histogram.buckets[0].low == 16  # two lengths of those that occur
    for mark in histogram.marks:
        assert any(b.low <= mark.x <= b.high and b.height for b in histogram.buckets)
    text = html_of((headline, lengths, errors))
    assert text.count('<g class="chosen">') == len(study.selection.seqpoints)


def test_error_falls_with_more_iterations_and_beats_what_people_do() -> None:
    lines = seqpoints(one_length())[2].blocks[0]
    assert isinstance(lines, Lines)
    last = {series.label: series.points[-1] for series in lines.series}
    assert set(last) == {"SeqPoint", "first", "median", "frequent", "random", "k-means"}
    assert len({x for x, _, _ in last.values()}) == 1
    assert last["SeqPoint"][1] < min(last[rule][1] for rule in ("first", "median", "frequent", "random"))


def test_two_lengths_are_a_map_whose_fields_hold_every_iteration() -> None:
    pairs = np.random.default_rng(3).integers(1, 30, (500, 2))
    study = studied(pairs, pairs.sum(axis=1) * 1.0, ("length_source", "length_target"))
    map_ = seqpoints(study)[1].blocks[0]
    assert isinstance(map_, DensityMap)
    assert (map_.x_label, map_.y_label) == ("Source", "Target")
    assert sum(int(field.text.rsplit(": ", 1)[1].split()[0]) for field in map_.fields) == 500
    assert len(map_.marks) == len(study.selection.seqpoints)


def test_a_third_length_is_told() -> None:
    triples = np.random.default_rng(3).integers(1, 5, (200, 3))
    study = studied(triples, triples.sum(axis=1) * 1.0, ("length_a", "length_b", "length_c"))
    blocks = seqpoints(study)[1].blocks
    assert isinstance(blocks[1], Notes)
    assert "first two are drawn" in blocks[1].notes[0].title


@pytest.mark.parametrize(
    ("lengths", "times"),
    [([5], [1.0]), ([5, 5, 5], [1.0, 2.0, 1.0]), ([1, 2**50], [1.0, 2.0]), ([3, 4], [0.0, 0.0])],
)
def test_odd_runs_have_pages(lengths: list[int], times: list[float]) -> None:
    study = studied(np.array(lengths)[:, None], np.array(times))
    assert "SeqPoints and their weights" in html_of(seqpoints(study))


def test_kernels() -> None:
    durations = (10 ** np.random.default_rng(1).uniform(2, 7, 700)).astype(np.int64)
    names = [f"kernel_{i % 7}" for i in range(700)]
    sample = sample_kernels(names, durations, error_percent=5)
    headline, where, errors = chosen_kernels(sample, names, durations)
    histogram = where.blocks[0]
    assert isinstance(histogram, Histogram)
    assert sum(bucket.height for bucket in histogram.buckets) == pytest.approx(100)
    assert len(histogram.marks) == len(sample.points)
    lines = errors.blocks[0]
    assert isinstance(lines, Lines)
    assert "95 % interval" in {series.label for series in lines.series}
    assert "kernel_3" in html_of((headline, where, errors))


@pytest.mark.parametrize("durations", [[0], [0, 0, 0], [5], [1, 10**12], [0, 7]])
def test_odd_kernels_have_pages(durations: list[int]) -> None:
    names, times = ["</script><b>"] * len(durations), np.array(durations)
    text = html_of(chosen_kernels(sample_kernels(names, times), names, times))
    assert "</script><b>" not in text


def chart_of(phase: list[int], points: dict[int, float]) -> PhaseChart:
    (chart,) = phases([Phases(label="gzip", phase=phase, points=points)]).blocks
    assert isinstance(chart, PhaseChart)
    return chart


def test_phases_are_drawn_where_they_run() -> None:
    chart = chart_of([7, 7, 1, 7, 1, 1, 1], {0: 3 / 7, 4: 4 / 7})
    assert [(row.label, row.detail) for row in chart.rows] == [
        ("phase 1", "57.1 %"),
        ("phase 7", "42.9 %"),
    ]
    assert [segment[:2] for segment in chart.rows[0].segments] == [(2, 3), (4, 7)]
    assert [segment[:2] for segment in chart.rows[1].segments] == [(0, 2), (3, 4)]
    assert [mark.x for mark in chart.rows[0].marks] == [4.5]
    assert "interval 4 stands for 57.1 % of the run" in html_of((phases([_of(chart)]),))


def _of(chart: PhaseChart) -> Phases:
    return Phases(label=chart.title, phase=[7, 7, 1, 7, 1, 1, 1], points={0: 3 / 7, 4: 4 / 7})


@given(st.lists(st.integers(0, 5), min_size=1, max_size=200))
def test_every_interval_is_in_its_phase_and_in_no_other(phase: list[int]) -> None:
    chart = chart_of(phase, {})
    drawn = np.zeros(len(phase), dtype=int)
    for row in chart.rows:
        for start, end, _ in row.segments:
            drawn[int(start) : int(end)] += 1
            assert {f"phase {id_}" for id_ in phase[int(start) : int(end)]} == {row.label}
    assert (drawn == 1).all()


def test_a_long_run_has_a_bounded_page() -> None:
    chart = chart_of([i % 2 for i in range(100_000)], {3: 1.0})
    assert max(len(row.segments) for row in chart.rows) <= FINEST


@pytest.mark.parametrize(("phase", "points"), [([], {}), ([1, 2], {2: 1.0}), ([1, 2], {-1: 1.0})])
def test_points_that_are_no_intervals(phase: list[int], points: dict[int, float]) -> None:
    with pytest.raises(InputError, match="a point is one of the run's intervals"):
        chart_of(phase, points)
