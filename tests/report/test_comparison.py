from __future__ import annotations

import io

from rich.console import Console

from conccl.report.comparison import render_comparison
from example_analysis import MS, analysis, hostile_analysis


def test_a_column_a_run_and_a_line_a_figure():
    console = Console(width=100, file=io.StringIO())
    console.print(render_comparison({"a": analysis(concurrent=7 * MS), "b": analysis(concurrent=5 * MS)}))
    assert isinstance(console.file, io.StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert lines[0] == ["a", "b"]
    assert lines[1][-2:] == ["0.24", "1.00"]
    assert ["Idle", "10.0", "%", "10.0", "%"] in lines


def test_labels_are_inert():
    console = Console(width=100, file=io.StringIO())
    console.print(render_comparison({"[red]x\x1b[0m": analysis(), "b": hostile_analysis()}))
    assert isinstance(console.file, io.StringIO)
    assert "\x1b" not in console.file.getvalue()
    assert "[red]x" in console.file.getvalue()
