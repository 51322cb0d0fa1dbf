from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from conccl.core.errors import OutputError
from conccl.report.perfetto import write_perfetto
from conccl.traces.reading import read_traces
from example_analysis import GEMM, MS, analysis, hostile_analysis


def written(run: Any, folder: Path) -> list[dict[str, Any]]:
    write_perfetto(run, path=folder / "out.json")
    events: list[dict[str, Any]] = json.loads((folder / "out.json").read_bytes())["traceEvents"]
    return events


def test_rows_states_and_steps_of_every_rank(tmp_path: Path):
    events = written(analysis(), tmp_path)
    for rank in (0, 1):
        mine = [event for event in events if event["ph"] == "X" and event["pid"] == rank]
        kinds = [event["cat"] for event in mine]
        assert kinds.count("kernel") == 6
        assert kinds.count("gpu_memcpy") == 3
        assert kinds.count("overlap") == 15
        assert kinds.count("gpu_user_annotation") == 3
        gemm = next(event for event in mine if event["name"] == GEMM)
        assert (gemm["ts"], gemm["dur"]) == (1_000_000.0, 6000.0)


def test_ranks_stand_on_their_common_clock(tmp_path: Path):
    run = analysis()
    assert run.clock is not None
    clock = dataclasses.replace(run.clock, offsets_ns={0: 0, 1: 2 * MS})
    events = written(dataclasses.replace(run, clock=clock), tmp_path)
    first = {
        rank: min(event["ts"] for event in events if event["ph"] == "X" and event["pid"] == rank)
        for rank in (0, 1)
    }
    assert first[0] - first[1] == 2000


def test_our_reader_reads_it(tmp_path: Path):
    write_perfetto(analysis(ranks=1), path=tmp_path / "out.json.gz")
    (trace,) = read_traces([tmp_path / "out.json.gz"]).traces
    assert len(trace.timeline) == 9
    assert trace.rank == 0


def test_hostile_names_stay_names(tmp_path: Path):
    names = {event["name"] for event in written(hostile_analysis(), tmp_path)}
    assert "</script><script>window.hacked=1</script>" in names


def test_nothing_drawn_is_an_empty_trace(tmp_path: Path):
    assert [event["name"] for event in written(dataclasses.replace(analysis(), ranks=()), tmp_path)] == [
        "trace_name"
    ]


def test_a_target_that_cannot_be_written_is_an_output_error(tmp_path: Path):
    with pytest.raises(OutputError, match="cannot write"):
        write_perfetto(analysis(), path=tmp_path)
