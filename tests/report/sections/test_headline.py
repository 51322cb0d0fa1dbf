from __future__ import annotations

import dataclasses

from conccl.advise.analysis import Analysis
from conccl.report.blocks import Figures, Gauges
from conccl.report.runs import runs_of
from conccl.report.sections.headline import headline
from conccl.traces.findings import OverlapEstimate, WindowOverlap
from example_analysis import MS, analysis, estimate, rank_analysis


def gauges(run: Analysis | dict[str, Analysis]) -> Gauges:
    block = next(b for b in headline(runs_of(run)).blocks if b.title == "Fraction of ideal")  # type: ignore[union-attr]
    assert isinstance(block, Gauges)
    return block


def figures(run: Analysis) -> dict[str, str]:
    block = headline(runs_of(run)).blocks[1]
    assert isinstance(block, Figures)
    return {figure.title: figure.rows[0].text for figure in block.figures}


def with_estimates(*estimates: OverlapEstimate) -> Analysis:
    ranks = tuple(
        dataclasses.replace(rank_analysis(number), overlap=each) for number, each in enumerate(estimates)
    )
    return dataclasses.replace(analysis(), ranks=ranks)


def test_two_runs_stand_on_one_axis_under_their_labels():
    # GIVEN one run near serial and one near ideal
    runs = {
        label: dataclasses.replace(
            analysis(), ranks=(dataclasses.replace(rank_analysis(concurrent=ms * MS), windows=()),)
        )
        for label, ms in (("SM copies", 7), ("copy engines", 5))
    }
    # WHEN the headline is made
    block = gauges(runs)
    # THEN both are placed on the same axis, and the axis has words at its ends
    assert [(row.label, row.text) for row in block.rows] == [("SM copies", "0.24"), ("copy engines", "1.00")]
    assert round(block.place(block.rows[0].value or 0)) == 24
    assert block.place(block.rows[1].value or 0) == 100
    assert "serial" in block.low_label
    assert "ideal" in block.high_label


def test_speedup_and_ideal_speedup_stand_beside_the_fraction():
    assert (
        gauges(analysis())
        .rows[0]
        .detail.startswith("speedup 1.14x of an ideal 1.60x; 15 ms compute and 9 ms communication took 21 ms")
    )


def test_worse_than_serial_stands_at_the_axis_end_with_its_own_number():
    block = gauges(with_estimates(estimate(compute=10 * MS, communication=8 * MS, concurrent=20 * MS)))
    assert block.rows[0].text == "-0.12"
    assert block.place(block.rows[0].value or 0) == 0


def test_the_median_rank_speaks_for_all_and_the_range_is_told():
    run = with_estimates(
        estimate(compute=10 * MS, communication=10 * MS, concurrent=19 * MS),
        estimate(compute=10 * MS, communication=10 * MS, concurrent=11 * MS),
        estimate(compute=10 * MS, communication=10 * MS, concurrent=15 * MS),
    )
    row = gauges(run).rows[0]
    assert row.text == "0.33"
    assert "rank 2, the median; ranks reach from 0.05 to 0.82" in row.detail


def test_unknown_and_meaningless_fractions_are_words():
    unknown = gauges(with_estimates(OverlapEstimate(overlap=None, source="unknown", unknown_ns=5)))
    assert (unknown.rows[0].value, unknown.rows[0].text) == (None, "unknown")
    tiny = gauges(with_estimates(estimate(compute=1000 * MS, communication=MS, concurrent=1000 * MS)))
    assert (tiny.rows[0].value, tiny.rows[0].text) == (None, "not meaningful")
    assert "next to nothing to gain" in tiny.rows[0].detail
    nobody = gauges(dataclasses.replace(analysis(), ranks=()))
    assert nobody.rows[0].detail == "no rank could be read"


def test_the_other_headline_numbers():
    assert figures(analysis()) == {
        "Communication hidden": "50.0 %",
        "Exposed communication": "6 ms",
        "Communication that waits": "75.0 %",
        "Idle": "10.0 %",
    }


def named(name: str, *, concurrent: int, span: int = 30 * MS) -> WindowOverlap:
    return WindowOverlap(
        name=name,
        count=6,
        start_ns=0,
        span_ns=span,
        overlap=estimate(compute=5 * MS, communication=3 * MS, concurrent=concurrent),
    )


def with_windows(*windows: WindowOverlap) -> Analysis:
    return dataclasses.replace(
        analysis(ranks=1), ranks=(dataclasses.replace(rank_analysis(), windows=windows),)
    )


def test_compared_runs_lead_with_the_longest_stretch_named_in_all_of_them():
    # GIVEN two runs in which a stretch is named alike, one that is longer but stands in one run only
    first = with_windows(
        named("concurrent", concurrent=7 * MS), named("alone", concurrent=6 * MS, span=90 * MS)
    )
    second = with_windows(
        named("concurrent", concurrent=5 * MS), named("warm-up", concurrent=6 * MS, span=MS)
    )
    # WHEN they are compared
    section = headline(runs_of({"a": first, "b": second}))
    # THEN that stretch leads, and the whole window stands among the other figures
    first_block, second_block = section.blocks
    assert isinstance(first_block, Gauges)
    assert isinstance(second_block, Figures)
    assert first_block.title == "Fraction of ideal in \u201cconcurrent\u201d"
    assert second_block.figures[0].title == "Fraction of ideal, everything"
    assert [row.text for row in second_block.figures[0].rows] == ["0.00", "0.00"]
    assert [row.text for row in first_block.rows] == ["0.24", "1.00"]
    assert first_block.rows[0].detail.endswith("6 stretches")


def test_a_run_alone_leads_with_its_whole_window():
    section = headline(runs_of(with_windows(named("forward", concurrent=6 * MS))))
    assert [block.title for block in section.blocks if isinstance(block, Gauges)] == ["Fraction of ideal"]


def test_every_figure_states_its_rule_and_the_window():
    section = headline(runs_of(analysis()))
    first, second = section.blocks
    assert isinstance(first, Gauges)
    assert isinstance(second, Figures)
    assert "Window: the whole trace." in first.rule
    assert all(figure.rule for figure in second.figures)
