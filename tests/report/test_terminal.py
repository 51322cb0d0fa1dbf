from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from conccl.advise.analysis import Analysis
from conccl.report.terminal import render_terminal
from example_analysis import MS, analysis, hostile_analysis, rank_analysis, split


def rendered(run: Analysis, /, *, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(render_terminal(run))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_ends_with_the_overlaps_that_cost_most_and_what_they_cost():
    # GIVEN a run with one region whose cost is known, one whose cost is not, and exposed communication
    # WHEN it is shown
    lines = rendered(analysis()).splitlines()
    # THEN the last lines name the known ones, what they cost on the mean of two ranks, and their sides
    assert lines[-5].startswith("The overlaps that cost most")
    assert lines[-4] == "1. 1 ms a rank lost, fraction of ideal 0.57; most on rank 0, step 1"
    assert lines[-2] == "2. 750 us a rank could be covered in 2 calls; most on rank 1, step 2"
    for line in (lines[-3], lines[-1]):
        assert "AllReduce" in line or "ncclDevKernel" in line
        assert "cutlass" in line


def test_time_split_stands_in_the_words_of_the_field():
    text = rendered(analysis())
    row = next(line for line in text.splitlines() if line.split()[:3] == ["0", "30", "ms"])
    assert row.split()[3:] == "40.0 % 20.0 % 20.0 % 10.0 % 10.0 % 50.0 % 0.24".split()  # noqa: SIM905


def test_waiting_and_transfer_are_told_apart_or_the_reason_given():
    assert "9 ms waiting (75.0 %), 3 ms transfer" in rendered(analysis())
    alone = dataclasses.replace(
        analysis(), ranks=(dataclasses.replace(rank_analysis(), wait_ns=None, transfer_ns=None),)
    )
    assert "Waiting against transfer: not known (one rank)" in rendered(alone)


def test_one_screen_however_many_ranks_and_warnings():
    many = dataclasses.replace(
        analysis(ranks=64),
        warnings=tuple(f"warning {i} {'long ' * 60}" for i in range(500)),
        collectives=analysis().collectives * 300,
        contention=analysis().contention * 300,
        regions=analysis().regions * 300,
        advice=analysis().advice * 300,
    )
    lines = rendered(many).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert "and 499 more" in "\n".join(lines)


def test_ranks_shown_are_those_with_most_exposed_communication():
    ranks = tuple(
        dataclasses.replace(
            rank_analysis(rank), split=split(compute=5, communication=rank, both=0, copy=0, idle=100 - rank)
        )
        for rank in range(20)
    )
    text = rendered(dataclasses.replace(analysis(), ranks=ranks))
    assert [line.split()[0] for line in text.splitlines() if " ns " in line][:8] == [
        str(rank) for rank in range(12, 20)
    ]
    assert "12 more" in text


def test_no_name_drives_the_terminal_or_its_markup():
    text = rendered(hostile_analysis(), width=300)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\u2028" not in text
    assert "[bold red]markup[/]" in text
    assert "\\x1b[31mred" in text


def test_says_why_no_overlap_has_a_cost():
    run = dataclasses.replace(analysis(), regions=(), costs=())
    assert "its cost is not known" in rendered(run)
    serial = split(compute=MS, communication=MS, both=0, copy=0, idle=0)
    ranks = (dataclasses.replace(rank_analysis(), split=serial),)
    assert "never ran together" in rendered(dataclasses.replace(run, ranks=ranks))
    none = split(compute=MS, communication=0, both=0, copy=0, idle=0)
    ranks = (dataclasses.replace(rank_analysis(), split=none),)
    assert "no communication in these traces" in rendered(dataclasses.replace(run, ranks=ranks))
    assert "No rank could be read" in rendered(dataclasses.replace(run, ranks=()))


def test_unknown_and_meaningless_fractions_are_words_not_numbers():
    rank = rank_analysis()
    unknown = dataclasses.replace(rank.overlap, overlap=None)
    text = rendered(
        dataclasses.replace(analysis(), ranks=(dataclasses.replace(rank, overlap=unknown),), regions=())
    )
    assert "unknown" in text
    assert "nan" not in text.lower().split()
