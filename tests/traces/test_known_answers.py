"""The reader against real traces whose answers are known (reference data, SOURCES.md)."""

from __future__ import annotations

import numpy as np
import pytest

from conccl.core.ops import CollectiveKind, DType
from conccl.core.timeline import Activity
from conccl.traces.kineto import read_trace
from conccl.traces.reading import read_traces
from conccl.traces.sources import find_traces
from conccl.traces.trace import RankSource, Trace
from shared_data import shared


def _only(path: str) -> Trace:
    (file,) = find_traces([shared(path)]).files
    (trace,) = read_trace(file)
    return trace


def _communication(trace: Trace) -> tuple[int, int]:
    """How many communication rows, and their summed time."""
    rows = trace.timeline.activity == Activity.COMMUNICATION
    return int(rows.sum()), int(trace.timeline.duration_ns[rows].sum())


@pytest.mark.parametrize(
    ("path", "rows", "communication", "time_us"),
    [
        ("traces/hta/df_index_resolver_df_index_resolver.json.gz", 22_290, 2_020, 357_343),
        ("traces/hta/trace_filter_sampled_rank-0.json.gz", 1_204, 10, 396_199),
        ("traces/hta/trace_filter_sampled_rank-1.json.gz", 1_154, 10, 379_053),
        ("traces/hta/trace_diff_control_control.json.gz", 9_450, 60, 163_535),
        ("traces/kineto/resnet50_v100_num_workers_4_worker0.pt.trace.json.gz", 9_258, 0, 0),
        ("traces/hta/critical_path_alexnet_benchmark_result_2869224_1695835535_trace.json.gz", 98, 0, 0),
    ],
)
def test_rows_and_communication(path: str, rows: int, communication: int, time_us: int) -> None:
    trace = _only(path)
    assert len(trace.timeline) == rows
    assert _communication(trace) == (communication, time_us * 1000)
    assert trace.warnings == ()


def test_dlrm_is_eight_ranks_of_an_archive() -> None:
    read = read_traces([shared("traces/param_dlrm_8rank/dlrm_kineto.tar.gz")])
    assert read.problems == ()
    assert read.warnings == ()
    assert [trace.rank for trace in read.traces] == list(range(8))
    assert {trace.world_size for trace in read.traces} == {8}
    sums = [_communication(trace) for trace in read.traces]
    assert [count for count, _ in sums] == [8] * 8
    assert sum(time_ns for _, time_ns in sums) // 8 == 6_067_750  # published: mean 6,068 us a rank


def test_dlrm_labels_say_what_its_kernels_do_not() -> None:
    read = read_traces([shared("traces/param_dlrm_8rank/dlrm_kineto.tar.gz")])
    kinds = {call.kind for call in read.traces[0].collectives}
    assert kinds == {CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_REDUCE}
    reduced = {
        (call.in_elements, call.dtype)
        for call in read.traces[0].collectives
        if call.kind is CollectiveKind.ALL_REDUCE
    }
    assert (394_241, DType.FP32) in reduced


def test_b200_multimem_kernels_are_communication() -> None:
    trace = _only("traces/tracelens/b200__eager_trace.json.gz")
    names = np.array(trace.timeline.names)[trace.timeline.name_id]
    multimem = np.char.find(names, "multimem_all_reduce_kernel") >= 0
    assert int(multimem.sum()) == 73
    assert set(trace.timeline.activity[multimem]) == {Activity.COMMUNICATION}
    assert 2_100_000 < int(trace.timeline.duration_ns[multimem].sum()) < 2_150_000
    assert _communication(trace)[0] == 74
    (gathered,) = [call for call in trace.collectives if call.kind is CollectiveKind.ALL_GATHER]
    assert (gathered.group, gathered.group_size, gathered.dtype) == ("3", 8, DType.BF16)
    assert gathered.nbytes == 201_088 * 2
    assert gathered.group_ranks == tuple(range(8))


def test_amd_trace_keeps_its_nanoseconds() -> None:
    trace = _only("traces/hta/amd_trace_mi250_minitoy_train_ROCm6_2_kineto.json.gz")
    copies = trace.timeline.where(trace.timeline.activity == Activity.COPY)
    assert 4_203_669_603_454_206 in copies.start_ns
    assert 22_441 in copies.duration_ns
    assert (trace.device, trace.device_name, trace.sm_count) == ("2", "AMD Radeon Graphics", 104)
    assert trace.rank_source is RankSource.ORDER


def test_every_row_belongs_to_the_step_that_launched_it() -> None:
    trace = _only("traces/hta/df_index_resolver_df_index_resolver.json.gz")
    counts = np.unique(trace.timeline.columns["step"], return_counts=True)
    assert [counts[0].tolist(), counts[1].tolist()] == [[0, 1, 2, 3, 4], [4_458] * 5]
    assert [step.number for step in trace.steps] == sorted(step.number for step in trace.steps)


@pytest.mark.parametrize(
    "path",
    [
        "traces/hta/trace_diff_control_control.json.gz",
        "traces/hta/df_index_resolver_df_index_resolver.json.gz",
        "traces/tracelens/b200__eager_trace.json.gz",
        "traces/kineto/resnet50_v100_num_workers_4_worker0.pt.trace.json.gz",
        "traces/tracelens/h100__gaunernst_bert-small-uncased__1016001.json.gz",
        "traces/hta/trace_filter_sampled_rank-0.json.gz",
    ],
)
def test_every_kernel_is_known(path: str) -> None:
    trace = _only(path)
    unknown = np.unique(trace.timeline.name_id[trace.timeline.columns["rule"] < 0])
    assert [trace.timeline.names[name] for name in unknown] == []
