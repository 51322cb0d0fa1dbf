from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.errors import OutputError
from conccl.core.timeline import Activity, Clock, Lane, Span, Timeline, timeline_of
from conccl.traces.chrome import overlap_tracks, step_track, write_chrome
from conccl.traces.reading import read_traces
from shared_data import shared

NAMES = {
    Activity.COMPUTE: ["gemm", "void at::native::vectorized_elementwise_kernel<4>", 'quoted "\\ \u2028 é'],
    Activity.COMMUNICATION: ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "Memcpy PtoP (Device -> Device)"],
    Activity.COPY: ["Memcpy DtoD (Device -> Device)", "Memset (Device)"],
}
EPOCH_NS = 1_700_000_000_123_456_789


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """One rank's rows on serial streams, as a profiler records them."""
    spans = []
    for stream in range(draw(st.integers(1, 3))):
        at = EPOCH_NS + draw(st.integers(0, 10**9))
        for _ in range(draw(st.integers(1, 6))):
            activity = draw(st.sampled_from(list(NAMES)))
            end = at + draw(st.integers(1, 10**7))
            spans.append(
                Span(
                    name=draw(st.sampled_from(NAMES[activity])),
                    lane=Lane(rank=3, device="0", stream=str(stream)),
                    activity=activity,
                    start_ns=at,
                    end_ns=end,
                )
            )
            at = end + draw(st.integers(0, 10**6))
    return timeline_of(spans, clock=Clock.TRACE)


def written(timeline: Timeline, folder: Path, /, **options: Any) -> dict[str, Any]:
    write_chrome(timeline, path=folder / "out.json", **options)
    document: dict[str, Any] = json.loads((folder / "out.json").read_bytes())
    return document


def events(document: dict[str, Any], category: str) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event.get("cat") == category]


@given(timelines())
def test_our_own_reader_reads_back_the_same_spans(
    tmp_path_factory: pytest.TempPathFactory, timeline: Timeline
):
    folder = tmp_path_factory.mktemp("round")
    write_chrome(timeline, path=folder / "trace.json.gz")
    (trace,) = read_traces([folder / "trace.json.gz"]).traces
    assert list(trace.timeline) == list(timeline)
    assert trace.rank == 3
    assert trace.health.overlapping_rows == 0


@pytest.mark.parametrize(
    "path",
    [
        "traces/hta/critical_path_cuda_event_sync_multi_stream_event_sync_trace.json.gz",
        "traces/hta/trace_filter_sampled_rank-0.json.gz",
        "traces/tracelens/b200__eager_trace.json.gz",
    ],
)
def test_real_traces_come_back_with_the_same_rows(path: str, tmp_path: Path):
    (trace,) = read_traces([shared(path)]).traces
    write_chrome(trace.timeline, path=tmp_path / "again.json.gz")
    (again,) = read_traces([tmp_path / "again.json.gz"]).traces
    assert list(again.timeline) == list(trace.timeline)
    for column in ("correlation", "ctas", "threads", "nbytes"):
        assert np.array_equal(again.timeline.columns[column], trace.timeline.columns[column]), column


def span(name: str, activity: Activity, start: int, end: int, rank: int = 0, stream: str = "7") -> Span:
    lane = Lane(rank=rank, device="0", stream=stream)
    return Span(name=name, lane=lane, activity=activity, start_ns=start, end_ns=end)


def test_overlap_lanes_say_what_every_moment_is(tmp_path: Path):
    timeline = timeline_of(
        [
            span("gemm", Activity.COMPUTE, 1000, 5000),
            span("nccl", Activity.COMMUNICATION, 3000, 7000, stream="20"),
            span("Memcpy HtoD", Activity.COPY, 6000, 8000, stream="21"),
            span("gemm", Activity.COMPUTE, 9000, 10_001),
        ],
        clock=Clock.GPU,
    )
    lanes = {
        (event["name"], event["ts"], event["dur"]) for event in events(written(timeline, tmp_path), "overlap")
    }
    assert lanes == {
        ("compute only", 1.0, 2.0),
        ("both", 3.0, 2.0),
        ("communication only", 5.0, 2.0),
        ("copy only", 7.0, 1.0),
        ("idle", 8.0, 1.0),
        ("compute only", 9.0, 1.001),
    }


@given(timelines())
def test_overlap_lanes_cover_the_span_once(timeline: Timeline):
    tracks = overlap_tracks(timeline)
    starts = np.concatenate([track.start_ns for track in tracks])
    ends = np.concatenate([track.end_ns for track in tracks])
    order = np.argsort(starts)
    assert starts[order][0] == timeline.start_ns.min()
    assert ends[order][-1] == timeline.end_ns.max()
    assert np.array_equal(starts[order][1:], ends[order][:-1])


def test_ranks_are_processes_with_their_lanes_above_their_streams(tmp_path: Path):
    timeline = timeline_of(
        [span("a", Activity.COMPUTE, 0, 1, rank=rank, stream="compute") for rank in (0, 1)],
        clock=Clock.SIMULATED,
    )
    document = written(timeline, tmp_path)
    named = [event for event in document["traceEvents"] if event["name"] == "thread_name"]
    of_rank_1 = [
        event["args"]["name"] for event in sorted(named, key=lambda e: e["tid"]) if event["pid"] == 1
    ]
    assert of_rank_1 == [
        "compute only",
        "communication only",
        "both",
        "copy only",
        "idle",
        "stream compute",
    ]
    assert "distributedInfo" not in document
    # Two ranks that name their device alike stay two GPUs for a reader.
    assert len({event["args"]["device"] for event in events(document, "kernel")}) == 2


def test_steps_are_read_back_as_steps(tmp_path: Path):
    timeline = timeline_of([span("gemm", Activity.COMPUTE, 0, 9000)], clock=Clock.GPU)
    track = step_track(rank=0, names=["ProfilerStep#4"], start_ns=np.array([0]), end_ns=np.array([10_000]))
    write_chrome(timeline, path=tmp_path / "trace.json", tracks=[track])
    (trace,) = read_traces([tmp_path / "trace.json"]).traces
    assert [(step.number, step.start_ns, step.end_ns) for step in trace.steps] == [(4, 0, 10_000)]


def test_an_empty_timeline_is_a_valid_document(tmp_path: Path):
    document = written(timeline_of([], clock=Clock.GPU), tmp_path)
    assert [event["name"] for event in document["traceEvents"]] == ["trace_name"]


def test_names_that_no_encoding_can_write_are_replaced(tmp_path: Path):
    timeline = timeline_of([span("a\ud800b", Activity.COMPUTE, 0, 1)], clock=Clock.GPU)
    assert events(written(timeline, tmp_path), "kernel")[0]["name"] == "a?b"


def test_gz_is_compressed_and_anything_else_is_not(tmp_path: Path):
    timeline = timeline_of([span("a", Activity.COMPUTE, 0, 1)], clock=Clock.GPU)
    write_chrome(timeline, path=tmp_path / "a.json.gz")
    write_chrome(timeline, path=tmp_path / "a.json")
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == (tmp_path / "a.json").read_bytes()


def test_a_target_that_cannot_be_written_is_an_output_error(tmp_path: Path):
    with pytest.raises(OutputError, match="cannot write"):
        write_chrome(timeline_of([], clock=Clock.GPU), path=tmp_path)
