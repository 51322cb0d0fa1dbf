from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from conccl.advise.analysis import Analysis, ClockCheck
from conccl.report.blocks import Notes, TimelineChart
from conccl.report.runs import runs_of
from conccl.report.sections.timeline import timeline
from example_analysis import GEMM, HOSTILE, MS, analysis, hostile_analysis, rank_analysis


def chart(run: Analysis | dict[str, Analysis]) -> TimelineChart:
    block = timeline(runs_of(run)).blocks[0]
    assert isinstance(block, TimelineChart)
    return block


def ranks(run: Analysis) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chart(run).data["charts"][0]["ranks"]
    return found


def test_lanes_of_compute_communication_and_copies_in_this_order():
    assert [lane["label"] for lane in ranks(analysis())[0]["lanes"]] == [
        "compute · 7",
        "communication · 20",
        "copy · 21",
    ]


def test_rows_come_back_from_steps_and_durations():
    lane = ranks(analysis())[0]["lanes"][1]
    starts = np.cumsum(lane["steps"])
    assert starts.tolist() == [4 * MS, 14 * MS, 24 * MS]
    assert lane["durations"] == [4 * MS] * 3


def test_states_fill_the_window():
    rank = ranks(analysis())[0]
    assert sum(rank["states"]["lengths"]) == rank["span"]
    assert rank["states"]["kinds"] == "02134" * 3


def test_names_stand_once_for_all_ranks_and_runs():
    block = chart({"a": analysis(), "b": analysis()})
    assert len(block.data["names"]) == 3
    assert block.data["names"][0] == GEMM
    assert [each["label"] for each in block.data["charts"]] == ["a", "b"]
    assert "same scale" in block.rule


def moved(ns: int, rank: int) -> Any:
    one = rank_analysis(rank)
    assert one.drawing is not None
    drawing = dataclasses.replace(one.drawing, origin_ns=one.drawing.origin_ns + ns)
    return dataclasses.replace(one, drawing=drawing)


def test_ranks_stand_where_the_shared_clock_puts_them():
    # GIVEN rank 1 starts 5 ms later by its clock, which runs 2 ms ahead
    run = dataclasses.replace(
        analysis(),
        ranks=(moved(0, 0), moved(5 * MS, 1)),
        clock=ClockCheck(matched=3, end_spread_ns=2 * MS, offsets_ns={0: 0, 1: 2 * MS}, residual_ns=1_000),
    )
    # THEN it is drawn 3 ms to the right
    assert [rank["shift"] for rank in ranks(run)] == [0, 3 * MS]
    assert any("aligned by a shared clock" in note for note in chart(run).notes)


def test_ranks_without_a_shared_clock_all_start_at_zero_and_the_page_says_so():
    run = dataclasses.replace(analysis(), ranks=(moved(0, 0), moved(5 * MS, 1)), clock=None)
    assert [rank["shift"] for rank in ranks(run)] == [0, 0]
    assert any("no clock is shared" in note for note in chart(run).notes)


def test_what_is_not_drawn_is_counted():
    one = rank_analysis(0)
    assert one.drawing is not None
    drawing = dataclasses.replace(one.drawing, left_out=7)
    run = dataclasses.replace(analysis(), ranks=(dataclasses.replace(one, drawing=drawing),))
    assert any("The 7 shortest rows are not drawn" in note for note in chart(run).notes)
    assert any("4 ranks" in note for note in chart(analysis(ranks=20)).notes)
    assert len(ranks(analysis(ranks=20))) == 16


def test_nothing_to_draw_is_said():
    run = dataclasses.replace(analysis(), ranks=(dataclasses.replace(rank_analysis(), drawing=None),))
    assert isinstance(timeline(runs_of(run)).blocks[0], Notes)


def test_names_are_inert():
    names = chart(hostile_analysis()).data["names"]
    assert names[0] == HOSTILE[0]
    assert names[2] == "line\\u2028separator\\u2029"
