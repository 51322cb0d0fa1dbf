from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from conccl.advise.analysis import Analysis
from conccl.report.blocks import DataTable, Dumbbells, Notes, Section, StackedBars
from conccl.report.html import page_of
from conccl.report.runs import Run, runs_of
from conccl.report.sections.breakdown import breakdown
from conccl.report.sections.collectives import collectives
from conccl.report.sections.contention import contention
from conccl.report.sections.health import health
from conccl.report.sections.regions import regions
from example_analysis import MS, analysis, rank_analysis

SECTIONS: list[Callable[[tuple[Run, ...]], Section]] = [breakdown, collectives, contention, regions, health]


def tables(section: Section) -> dict[str, DataTable]:
    return {block.title: block for block in section.blocks if isinstance(block, DataTable)}


def column(table: DataTable, label: str) -> list[str]:
    place = [each.label for each in table.columns].index(label)
    return [row[place].text for row in table.rows]


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("count", [1, 2])
def test_every_row_fills_every_column_and_sorts_by_numbers(section: Callable[..., Section], count: int):
    runs = runs_of({f"run {number}": analysis() for number in range(count)})
    for table in tables(section(runs)).values():
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}
        assert ("Run" in [each.label for each in table.columns]) is (count > 1)
        for row in table.rows:
            for cell, each in zip(row, table.columns, strict=True):
                assert each.numeric or cell.value is None
                assert not each.numeric or cell.value is not None or cell.text in {"-", "n/a", "unknown"}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_block_states_its_rule(section: Callable[..., Section]):
    for block in section(runs_of(analysis())).blocks:
        if not isinstance(block, Notes):
            assert block.rule  # type: ignore[union-attr]


def test_parts_of_a_bar_sum_to_its_span_and_bars_share_one_scale():
    short = dataclasses.replace(analysis(), ranks=(rank_analysis(0),))
    half = rank_analysis(0)
    half = dataclasses.replace(
        half,
        split=dataclasses.replace(half.split, span_ns=half.split.span_ns - half.split.idle_ns, idle_ns=0),
    )
    block = breakdown(runs_of({"a": short, "b": dataclasses.replace(short, ranks=(half,))})).blocks[0]
    assert isinstance(block, StackedBars)
    first, second = block.groups
    assert first.bars[0].total == 30 * MS
    assert second.bars[0].total == 27 * MS
    assert block.longest == 30 * MS
    assert sum(part.share for part in first.bars[0].parts) == pytest.approx(1)


def test_numbers_list_ranks_and_their_steps():
    table = tables(breakdown(runs_of(analysis(ranks=1))))["All numbers"]
    assert column(table, "Step") == ["all", "ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert column(table, "Communication only") == ["6 ms", "2 ms", "2 ms", "2 ms"]
    assert column(table, "Fraction of ideal") == ["0.24"] * 4


def test_unmatched_collectives_have_dashes_that_sort_last():
    table = tables(collectives(runs_of(analysis())))["By kind, group and size"]
    assert column(table, "Wait") == ["9 ms", "-"]
    place = [each.label for each in table.columns].index("Wait")
    assert [row[place].value for row in table.rows] == [9 * MS, None]
    assert column(table, "Size") == ["64 MiB", "-"]


def test_tables_are_bounded_and_say_what_is_left_out():
    run = dataclasses.replace(analysis(), collectives=analysis().collectives * 1000)
    table = tables(collectives(runs_of(run)))["By kind, group and size"]
    assert len(table.rows) == 500
    assert table.left_out == 1500


def test_slowdowns_are_plotted_from_alone_to_overlapped():
    block = contention(runs_of(analysis())).blocks[0]
    assert isinstance(block, Dumbbells)
    (row,) = block.groups[0].rows  # the kernel that never ran alone has no dumbbell
    assert (row.alone, row.overlapped, row.text) == (4 * MS, 6 * MS, "1.55x")
    assert 0 <= block.place(row.alone) < block.place(row.overlapped) <= 100
    assert block.ticks[0].value <= row.alone
    assert block.ticks[-1].value >= row.overlapped


@pytest.mark.parametrize(("alone", "overlapped"), [(1, 1), (1, 9), (10, 1_000_000_000), (999, 1001), (7, 70)])
def test_the_axis_holds_all_values_and_few_ticks(alone: int, overlapped: int):
    entry = dataclasses.replace(analysis().contention[0], alone_ns=alone, overlapped_ns=overlapped)
    block = contention(runs_of(dataclasses.replace(analysis(), contention=(entry,)))).blocks[0]
    assert isinstance(block, Dumbbells)
    assert 0 <= block.place(alone) <= block.place(overlapped) <= 100
    assert 2 <= len(block.ticks) <= 12


def test_a_kernel_that_waits_is_not_plotted_as_if_overlap_had_made_it_faster():
    entry = dataclasses.replace(analysis().contention[0], waits=True, slowdown=0.01, excess_ns=-5 * MS)
    section = contention(runs_of(dataclasses.replace(analysis(), contention=(entry,))))
    assert isinstance(section.blocks[0], Notes)
    assert len(tables(section)) == 1


def test_no_slowdown_is_said():
    run = dataclasses.replace(analysis(), contention=analysis().contention[1:])
    assert isinstance(contention(runs_of(run)).blocks[0], Notes)


def test_oddities_that_never_occur_have_no_column():
    labels = [each.label for each in tables(health(runs_of(analysis())))["Rows"].columns]
    assert "No duration" in labels
    assert "Negative" not in labels


def test_problems_and_warnings_come_first_and_are_bounded():
    run: Analysis = dataclasses.replace(analysis(), warnings=tuple(f"warning {i}" for i in range(500)))
    block = health(runs_of(run)).blocks[0]
    assert isinstance(block, Notes)
    assert block.notes[0].level == "problem"
    assert block.notes[0].text == "is empty. Export the trace again."
    assert len(block.notes) == 41
    assert "461 more" in block.notes[-1].title


def test_a_run_in_which_nothing_was_found_still_has_a_page():
    empty = dataclasses.replace(
        analysis(),
        ranks=(),
        collectives=(),
        contention=(),
        regions=(),
        exposed=(),
        unclassified=(),
        advice=(),
        warnings=(),
        problems=(),
        clock=None,
    )
    assert len(page_of(empty, title="t").sections) == 8
