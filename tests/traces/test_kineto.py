"""What the reader makes of traces of every generation: rows, links, steps, collectives, health."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from conccl.core.errors import TraceError
from conccl.core.ops import CollectiveKind, DType
from conccl.core.timeline import Activity
from conccl.traces.classify import HostCopies
from conccl.traces.kineto import read_trace
from conccl.traces.reading import read_traces
from conccl.traces.sources import TraceFile
from conccl.traces.trace import RankSource, Trace
from made_kineto import (
    Event,
    document,
    file_of,
    gpu_row,
    host_row,
    kernel,
    launch,
    read_all,
    read_one,
    text_of,
    write,
)

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNN"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.json"


def _column(trace: Trace, name: str) -> list[int]:
    values: list[int] = trace.timeline.columns[name].tolist()
    return values


def _rule(trace: Trace, row: int = 0) -> str:
    return trace.rules[_column(trace, "rule")[row]]


# Rows


def test_rows_are_exact_and_in_order(path: Path) -> None:
    text = text_of(
        [
            kernel("b", "X1", 0.5, stream=9),
            kernel("a", 7, 2),
            gpu_row("gpu_memset", "Memset (Device)", 9, 1, bytes=64),
        ]
    )
    trace = read_one(path, text.replace(b'"X1"', b"1682725898236567.123"))
    assert trace.timeline.start_ns.tolist() == [7_000, 9_000, 1_682_725_898_236_567_123]
    assert trace.timeline.duration_ns.tolist() == [2_000, 1_000, 500]
    assert [span.name for span in trace.timeline] == ["a", "Memset (Device)", "b"]
    assert [span.lane.stream for span in trace.timeline] == ["7", "7", "9"]
    assert _column(trace, "nbytes") == [0, 64, 0]
    assert [span.activity for span in trace.timeline] == [Activity.COMPUTE, Activity.COPY, Activity.COMPUTE]


@pytest.mark.parametrize(
    "categories", [("kernel", "gpu_memcpy"), ("Kernel", "Memcpy"), ("KERNEL", "GPU_MEMCPY")]
)
def test_categories_of_all_generations(path: Path, categories: tuple[str, str]) -> None:
    trace = read_one(
        path,
        [
            gpu_row(categories[0], GEMM, 1, 1),
            gpu_row(categories[1], "Memcpy HtoD (Pageable -> Device)", 2, 1),
        ],
    )
    assert [span.activity for span in trace.timeline] == [Activity.COMPUTE, Activity.COPY]


def test_grid_block_and_variants(path: Path) -> None:
    rows = [
        kernel("k", 1, 1, grid=[8, 16, 5], block=[128, 2, 1]),
        kernel("k", 2, 1, grid=[8, 16, 5], block=[128, 2, 1]),
        kernel("k", 3, 1, grid=[8, 16, 4], block=[128, 2, 1]),
        kernel("l", 4, 1, grid=[8, 16, 5], block=[128, 2, 1]),
        kernel("l", 5, 1, grid="[1,1,1]", block=[0, 1, 1]),
        kernel("l", 6, 1, grid=[1 << 62, 1 << 62, 1], block=[[1]]),
    ]
    trace = read_one(path, rows)
    assert _column(trace, "ctas") == [640, 640, 512, 640, 0, 0]
    assert _column(trace, "threads") == [256, 256, 256, 256, 0, 0]
    variant = _column(trace, "variant")
    assert variant[0] == variant[1]
    assert len(set(variant)) == 5


def test_variants_are_told_apart_by_the_shapes_of_the_operator(path: Path) -> None:
    def call(ts: float, correlation: int, dims: list[list[int]]) -> list[Event]:
        return [
            host_row("cpu_op", "aten::linear", ts, 50, **{"Input Dims": [[1]]}),
            host_row("cpu_op", "aten::t", ts + 1, 5, **{"Input Dims": [[9, 9]]}),
            host_row("cpu_op", "aten::mm", ts + 10, 20, **{"Input Dims": dims}),
            launch(ts + 15, correlation),
            kernel("gemm", ts + 40, 3, correlation=correlation, grid=[1, 1, 1], block=[32, 1, 1]),
        ]

    small, large = [[2, 3], [3, 4]], [[20, 30], [30, 40]]
    trace = read_one(path, [*call(100, 1, small), *call(200, 2, large), *call(300, 3, small)])
    variant = _column(trace, "variant")
    assert variant[0] == variant[2] != variant[1]


def test_streams_without_a_number_are_process_and_thread(path: Path) -> None:
    rows = [kernel("a", 1, 5), kernel("b", 1, 5), kernel("c", 1, 5)]
    for row, thread in zip(rows, (3, "stream 3", 3), strict=True):
        del row["args"]["stream"]
        row["tid"] = thread
    trace = read_one(path, rows)
    assert [lane.stream for lane in trace.timeline.lanes] == ["0/3", "0/stream 3"]


def test_gpus_of_one_process_are_never_united(path: Path) -> None:
    rows = [kernel("a", 1, 5), kernel("b", 2, 5, device=1), kernel("c", 20, 5, device=1)]
    traces = read_all(path, rows)
    assert [(trace.device, len(trace.timeline)) for trace in traces] == [("1", 2), ("0", 1)]
    assert all("several GPUs" in trace.warnings[0] for trace in traces)
    read = read_traces([path])
    assert [(trace.rank, trace.device) for trace in read.traces] == [(0, "0"), (1, "1")]
    assert {lane.rank for lane in read.traces[1].timeline.lanes} == {1}
    assert len(read.warnings) == 1


def test_device_rank_and_world_size(path: Path) -> None:
    text = text_of(
        [kernel("a", 1, 5, device=2)],
        deviceProperties=[
            {"id": 0, "name": "A", "numSms": 1},
            {"id": 2, "name": "NVIDIA H200", "numSms": 132},
        ],
        distributedInfo={"backend": "nccl", "rank": 5, "world_size": 8},
    )
    trace = read_trace(TraceFile(path=str(write(path, text)), rank=0, rank_source=RankSource.ORDER))[0]
    assert (trace.rank, trace.rank_source, trace.world_size) == (5, RankSource.DISTRIBUTED_INFO, 8)
    assert (trace.device_name, trace.sm_count) == ("NVIDIA H200", 132)
    given = read_trace(file_of(path, rank=3))[0]
    assert (given.rank, given.rank_source) == (3, RankSource.GIVEN)


@pytest.mark.parametrize(
    "top",
    [
        {"distributedInfo": 3},
        {"distributedInfo": {"rank": 1 << 30, "world_size": (1 << 31) - 1}},
        {"distributedInfo": {"rank": -1, "world_size": "many", "pg_config": 3}},
        {"distributedInfo": {"rank": 1e99, "pg_config": [{"pg_name": 1, "ranks": "0"}, 7]}},
        {"deviceProperties": [3, {"id": None}, {"id": 0, "name": 7, "numSms": "x"}]},
        {"deviceProperties": {"id": 0}},
    ],
)
def test_metadata_of_any_shape(path: Path, top: dict[str, object]) -> None:
    trace = read_one(path, text_of([kernel("a", 1, 5)], **top))
    assert (trace.world_size, trace.device_name, trace.sm_count) == (None, None, None)


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, "x", None, 1e300, 1 << 70, [], True])
@pytest.mark.parametrize(
    "field", ["correlation", "bytes", "graph node id", "device", "stream", "fromDevice", "grid"]
)
def test_arguments_of_any_shape(path: Path, field: str, value: object) -> None:
    row = kernel("a", 1, 5)
    row["args"][field] = value
    trace = read_one(path, [row])
    assert len(trace.timeline) == 1
    (other,) = read_all(path, [row, kernel("b", 9, 5, device=0)])[-1:]
    assert len(other.timeline) >= 1


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, "x", None, 1e300, 1 << 70, [], True])
@pytest.mark.parametrize(
    "field",
    [
        *("Collective name", "Process Group Name", "Process Group Ranks", "Group size", "Seq"),
        *("dtype", "In msg nelems", "Out msg nelems"),
    ],
)
def test_collective_arguments_of_any_shape(path: Path, field: str, value: object) -> None:
    said = {"Collective name": "allreduce", "Process Group Name": "0", "Seq": 3} | {field: value}
    trace = read_one(path, [kernel("ncclDevKernel_AllReduce", 1, 5, **said), kernel("b", 9, 5)])
    assert trace.timeline.activity.tolist() == [Activity.COMMUNICATION, Activity.COMPUTE]
    (call,) = trace.collectives
    assert call.kind is CollectiveKind.ALL_REDUCE


# Launches and steps


def test_work_belongs_to_the_step_that_launched_it(path: Path) -> None:
    trace = read_one(
        path,
        [
            host_row("user_annotation", "ProfilerStep#7", 100, 100),
            host_row("user_annotation", "ProfilerStep#8", 200, 100),
            launch(150, 1),
            launch(199, 2, name="hipExtLaunchKernel"),
            launch(210, 3, name="cuLaunchKernelEx"),
            launch(450, 4),
            kernel("late", 260, 5, correlation=1),
            kernel("later", 270, 5, correlation=2),
            kernel("latest", 280, 5, correlation=3),
            kernel("behind all steps", 500, 5, correlation=4),
            kernel("of unknown launch", 600, 5, correlation=99),
        ],
    )
    assert [step.number for step in trace.steps] == [7, 8]
    assert _column(trace, "step") == [0, 0, 1, -1, -1]
    assert _column(trace, "launch_ns") == [150_000, 199_000, 210_000, 450_000, -1]
    assert trace.health.unlinked_rows == 1


def test_steps_of_old_traces_are_operators(path: Path) -> None:
    step = host_row("Operator", "ProfilerStep#3", 0, 100, tid="100")
    trace = read_one(path, [step, {**launch(5, 1), "cat": "Runtime"}, kernel("k", 8, 1, correlation=1)])
    assert [step.name for step in trace.steps] == ["ProfilerStep#3"]
    assert _column(trace, "step") == [0]


def test_without_launches_steps_are_told_by_the_gpu_s_own_labels(path: Path) -> None:
    trace = read_one(
        path,
        [
            gpu_row("gpu_user_annotation", "ProfilerStep#1", 100, 50),
            gpu_row("gpu_user_annotation", "ProfilerStep#2", 150, 50),
            kernel("a", 110, 5),
            kernel("b", 160, 5),
        ],
    )
    assert _column(trace, "step") == [0, 1]
    assert trace.health.unlinked_rows == 2
    assert trace.annotations.on_gpu.tolist() == [True, True]


def test_graph_launches_are_flagged(path: Path) -> None:
    rows = [
        launch(1, 1, name="cudaGraphLaunch"),
        launch(2, 2, name="hipGraphLaunch"),
        launch(3, 3),
        kernel("a", 11, 1, correlation=1),
        kernel("b", 12, 1, correlation=1),
        kernel("c", 13, 1, correlation=2),
        kernel("d", 14, 1, correlation=3),
        kernel("e", 15, 1, **{"graph node id": 77}),
    ]
    trace = read_one(path, rows)
    assert _column(trace, "in_graph") == [True, True, True, False, True]
    assert trace.health.graph_rows == 4


def test_labels_are_kept_with_their_windows(path: Path) -> None:
    trace = read_one(
        path,
        [
            host_row("user_annotation", "isolated", 30, 5),
            host_row("user_annotation", "concurrent", 10, 5),
            host_row("user_annotation", "isolated", 50, -5),
            kernel("a", 1, 1),
        ],
    )
    labels = trace.annotations
    assert [labels.names[number] for number in labels.name_id] == ["concurrent", "isolated"]
    assert labels.start_ns.tolist() == [10_000, 30_000]
    assert labels.end_ns.tolist() == [15_000, 35_000]


@pytest.mark.parametrize("category", ["ac2g", "async_cpu_to_gpu", "async"])
def test_rows_without_correlation_are_linked_by_arrows(path: Path, category: str) -> None:
    def arrow(ph: str, number: int, ts: float, pid: int, tid: object) -> Event:
        return {"ph": ph, "id": number, "pid": pid, "tid": tid, "ts": ts, "cat": category, "name": category}

    rows = [kernel("a", 260.5, 5), kernel("b", 270, 5), kernel("c", 280, 5)]
    for row in rows:
        del row["args"]["correlation"]
    trace = read_one(
        path,
        [
            host_row("user_annotation", "ProfilerStep#7", 100, 100),
            *rows,
            arrow("s", 1, 150.25, 100, 100),
            arrow("f", 1, 260.5, 0, 7),
            arrow("f", 2, 270, 100, 100),  # of a runtime call: ends on the host
            arrow("s", 3, 350, 100, "100"),
            arrow("f", 3, 280, 0, "7"),
        ],
    )
    assert _column(trace, "launch_ns") == [150_250, -1, 350_000]
    assert _column(trace, "correlation") == [1, -1, 3]
    assert _column(trace, "step") == [0, -1, -1]


# Communication


def test_collective_metadata(path: Path) -> None:
    said = {
        "Collective name": "_allgather_base",
        "In msg nelems": 100,
        "Out msg nelems": 800,
        "Group size": 8,
        "dtype": "BFloat16",
        "Process Group Name": "3",
        "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
        "Seq": 41,
    }
    trace = read_one(path, [kernel("ncclDevKernel_AllGather_RING_LL", 1, 1, **said), kernel("k", 2, 1)])
    (call,) = trace.collectives
    assert (call.kind, call.group, call.group_size, call.sequence) == (CollectiveKind.ALL_GATHER, "3", 8, 41)
    assert call.group_ranks == tuple(range(8))
    assert (call.dtype, call.in_elements, call.out_elements, call.nbytes) == (DType.BF16, 100, 800, 1600)
    assert _column(trace, "collective") == [0, -1]


def test_metadata_makes_a_kernel_communication_whatever_its_name(path: Path) -> None:
    trace = read_one(
        path,
        [
            kernel(GEMM, 1, 1, **{"Collective name": "allreduce"}),
            kernel("conccl_all_gather_gemm", 2, 1, **{"Collective name": "x"}),
        ],
    )
    assert [span.activity for span in trace.timeline] == [Activity.COMMUNICATION, Activity.FUSED]
    assert _rule(trace) == "collective metadata"
    assert trace.collectives[0].kind is CollectiveKind.ALL_REDUCE


@pytest.mark.parametrize("odd", [{"a": [1]}, [[1], 2], [{}], None, 1.5, True, "x"])
@pytest.mark.parametrize(
    "field",
    [
        "Collective name",
        "dtype",
        "Seq",
        "Group size",
        "Process Group Name",
        "Process Group Ranks",
        "In msg nelems",
    ],
)
def test_metadata_of_a_collective_of_any_shape(path: Path, field: str, odd: object) -> None:
    said = {
        "Collective name": "allreduce",
        "dtype": "Float",
        field: odd,
        "Input Dims": odd,
        "Input type": odd,
    }
    rows = [host_row("cpu_op", "record_param_comms", 1, 9, **said), launch(5, 1)]
    trace = read_one(
        path, [*rows, kernel(NCCL, 20, 1, **said), kernel("never_heard_of", 30, 1, correlation=1)]
    )
    assert [span.activity for span in trace.timeline] == [Activity.COMMUNICATION] * 2
    assert all(call.kind in (CollectiveKind.ALL_REDUCE, None) for call in trace.collectives)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([0, 2], (0, 2)),
        ("[0, 2]", (0, 2)),
        ("[0, 2, ..., 30]", None),
        ("[]", None),
        ([0, 1, 2], None),
        (7, None),
        (["a", None], None),
    ],
)
def test_ranks_of_a_group_as_list_or_text(
    path: Path, ranks: object, expected: tuple[int, ...] | None
) -> None:
    said = {"Collective name": "allreduce", "Group size": 2, "Process Group Ranks": ranks}
    trace = read_one(path, [kernel(NCCL, 1, 1, **said)])
    assert trace.collectives[0].group_ranks == expected
    assert trace.collectives[0].group_size == 2


def test_ranks_of_a_group_from_the_trace_s_own_list(path: Path) -> None:
    groups = [{"pg_name": "7", "ranks": [4, 5]}]
    text = text_of(
        [kernel(NCCL, 1, 1, **{"Collective name": "allreduce", "Process Group Name": "7"})],
        distributedInfo={"rank": 4, "pg_config": groups},
    )
    trace = read_one(path, text)
    assert (trace.collectives[0].group_ranks, trace.collectives[0].group_size) == ((4, 5), 2)


@pytest.mark.parametrize("category", ["user_annotation", "cpu_op"])
def test_a_label_around_the_launch_says_what_the_kernel_does_not(path: Path, category: str) -> None:
    trace = read_one(
        path,
        [
            host_row(
                category, "nccl:all_to_all", 10, 20, **{"Input Dims": [[6144]], "Input type": ["float"]}
            ),
            host_row(
                category,
                "nccl:all_to_all",
                50,
                20,
                tid=101,
                **{"Input Dims": [[1]], "Input type": ["long int"]},
            ),
            launch(15, 1),
            launch(16, 2),
            launch(55, 3),
            kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", 100, 1, correlation=1),
            kernel("never_heard_of", 110, 1, correlation=2),
            kernel("never_heard_of", 120, 1, correlation=3),
        ],
    )
    activities = [Activity.COMMUNICATION, Activity.COMMUNICATION, Activity.COMPUTE]
    assert [span.activity for span in trace.timeline] == activities
    assert [_rule(trace, row) for row in (0, 1)] == ["nccl-kernel", "communication label"]
    assert _column(trace, "rule")[2] == -1
    (call,) = trace.collectives
    assert (call.kind, call.dtype, call.nbytes) == (CollectiveKind.ALL_TO_ALL, DType.FP32, 4 * 6144)
    assert _column(trace, "collective") == [0, 0, -1]


def test_param_comms_around_the_launch(path: Path) -> None:
    said = {"Collective name": "reduce_scatter_tensor_coalesced", "dtype": "Float", "Seq": "5"}
    said |= {"In msg nelems": "16", "Out msg nelems": 2, "Process Group Name": "default"}
    trace = read_one(
        path,
        [
            host_row("cpu_op", "record_param_comms", 1, 9, **said),
            launch(5, 1),
            kernel(NCCL, 20, 1, correlation=1),
        ],
    )
    (call,) = trace.collectives
    assert (call.kind, call.sequence, call.nbytes) == (CollectiveKind.REDUCE_SCATTER, 5, 64)


def test_copies_between_devices_are_communication(path: Path) -> None:
    trace = read_one(
        path,
        [
            gpu_row(
                "gpu_memcpy", "Memcpy DtoD (Device -> Device)", 1, 1, fromDevice=0, inDevice=0, toDevice=1
            ),
            gpu_row("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 2, 1, fromDevice=0, toDevice=0),
            gpu_row("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 3, 1),
            gpu_row("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 4, 1),
        ],
    )
    communication, copy = Activity.COMMUNICATION, Activity.COPY
    assert [span.activity for span in trace.timeline] == [communication, copy, communication, copy]
    assert _rule(trace) == "copy between devices"


def test_host_copies_count_as_the_user_says(path: Path) -> None:
    trace = read_one(
        path,
        [gpu_row("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 4, 1)],
        host_copies=HostCopies.COMMUNICATION,
    )
    assert [span.activity for span in trace.timeline] == [Activity.COMMUNICATION]


def test_synchronisation_and_labels_of_the_gpu_are_no_work(path: Path) -> None:
    trace = read_one(
        path,
        [
            kernel("a", 1, 1),
            gpu_row("cuda_sync", "Stream Sync", 2, 100),
            gpu_row("Cuda_Sync", "Event Sync", 2, 100),
            gpu_row("gpu_user_annotation", "nccl:all_reduce", 2, 100),
            gpu_row("overhead", "Buffer Flush", 2, 100),
            {**kernel("instant", 5, 1), "ph": "i"},
        ],
    )
    assert [span.name for span in trace.timeline] == ["a"]
    assert trace.health.sync_rows == 2


# Health


def test_rows_as_begin_and_end_are_counted_and_told(path: Path) -> None:
    begun = [{**kernel("k", 5, 1), "ph": phase} for phase in "BE"] * 3
    trace = read_one(path, [kernel("gemm", 1, 2), *begun])
    assert len(trace.timeline) == 1
    assert any(warning.startswith("3 GPU rows are given as begin and end") for warning in trace.warnings)
    with pytest.raises(TraceError, match="3 are begin and end"):
        read_one(path, begun)


def test_rows_that_overrun_the_next_on_their_stream_are_cut(path: Path) -> None:
    rows = [kernel("a", 0, 100), kernel("b", 90, 10), kernel("c", 50, 500, stream=8), kernel("d", 100, 1)]
    trace = read_one(path, rows)
    ends = {span.name: span.end_ns for span in trace.timeline}
    assert ends == {"a": 90_000, "b": 100_000, "c": 550_000, "d": 101_000}
    assert (trace.health.overlapping_rows, trace.health.clipped_ns) == (1, 10_000)
    assert "10000 ns were cut off" in trace.warnings[0]


def test_rows_of_a_graph_may_run_side_by_side(path: Path) -> None:
    rows = [launch(0, 1, name="cudaGraphLaunch")]
    rows += [kernel("a", 10, 100, correlation=1), kernel("b", 20, 10, correlation=1)]
    trace = read_one(path, rows)
    assert trace.timeline.duration_ns.tolist() == [100_000, 10_000]
    assert (trace.health.overlapping_rows, trace.health.clipped_ns) == (1, 0)


@pytest.mark.parametrize(
    ("ts", "dur", "kept", "bad", "negative", "zero"),
    [
        (5, 0, 1, 0, 0, 1),
        (5, -1, 0, 0, 1, 0),
        (5, -0.001, 0, 0, 1, 0),
        (float("nan"), 1, 0, 1, 0, 0),
        (5, float("inf"), 0, 1, 0, 0),
        (5, "1", 1, 0, 0, 0),
        ("5.5", "0.25", 1, 0, 0, 0),
        ("now", 1, 0, 1, 0, 0),
        (None, 1, 0, 1, 0, 0),
        (5, None, 0, 1, 0, 0),
        (5, 1e40, 0, 1, 0, 0),
        (5, 10**17, 0, 1, 0, 0),
        (10**40, 1, 0, 1, 0, 0),
        ([5], {"a": 1}, 0, 1, 0, 0),
        (True, 1, 0, 1, 0, 0),
    ],
)
def test_odd_times(
    path: Path, ts: object, dur: object, kept: int, bad: int, negative: int, zero: int
) -> None:
    trace = read_one(path, [kernel("good", 1, 1), kernel("odd", ts, dur)])
    health = trace.health
    assert len(trace.timeline) == 1 + kept
    assert (health.bad_time_rows, health.negative_rows, health.zero_rows) == (bad, negative, zero)
    assert bool(trace.warnings) == (kept == 0)


def test_a_row_of_hours_is_kept_and_told(path: Path) -> None:
    trace = read_one(path, [kernel("good", 1, 1), kernel("endless", 5, 7_200_000_000)])
    assert trace.health.longest_ns == 7_200_000_000_000
    (warning,) = trace.warnings
    assert "the longest GPU row lasts 7200 s" in warning


def test_a_row_without_any_duration_is_left_out(path: Path) -> None:
    row = kernel("odd", 5, 1)
    del row["dur"]
    assert read_one(path, [kernel("good", 1, 1), row]).health.bad_time_rows == 1


def test_unix_times_in_nanoseconds_are_converted_and_told(path: Path) -> None:
    ns = 1_700_000_000_000_000_000
    trace = read_one(path, [kernel("us", ns // 1000, 5), kernel("ns", ns + 10_000, 5_000)])
    assert trace.timeline.start_ns.tolist() == [ns, ns + 10_000]
    assert trace.timeline.duration_ns.tolist() == [5_000, 5_000]
    assert trace.health.nanosecond_rows == 1
    assert "nanoseconds" in trace.warnings[0]


def test_gpu_times_a_thousand_times_their_launches_are_nanoseconds(path: Path) -> None:
    us = 2_203_669_603_454
    rows = [launch(us, 1), launch(us + 50, 2), kernel("a", us * 1000 + 9_000, 5_000, correlation=1)]
    trace = read_one(path, [*rows, kernel("b", us + 60, 5, correlation=2)])
    assert trace.timeline.start_ns.tolist() == [us * 1000 + 9_000, us * 1000 + 60_000]
    assert trace.timeline.duration_ns.tolist() == [5_000, 5_000]
    assert trace.health.nanosecond_rows == 1


def test_a_whole_trace_in_nanoseconds_keeps_its_links(path: Path) -> None:
    ns = 4_203_669_603_454_000
    trace = read_one(path, [launch(ns, 1), kernel("a", ns + 9_000, 5_000, correlation=1)])
    assert trace.timeline.start_ns.tolist() == [ns + 9_000]
    assert trace.timeline.duration_ns.tolist() == [5_000]
    assert _column(trace, "launch_ns") == [ns]


def test_a_trace_near_zero_of_its_clock_is_not_mistaken_for_nanoseconds(path: Path) -> None:
    trace = read_one(path, [launch(1, 1), kernel("a", 1_000, 5, correlation=1)])
    assert trace.timeline.start_ns.tolist() == [1_000_000]


def test_what_came_before_a_break_is_read_and_flagged(path: Path) -> None:
    text = text_of([kernel("a", 1, 1), kernel("b", 2, 1)])
    for content in (text[: text.rindex(b'"b"')], text[: text.rindex(b"]")]):
        trace = read_one(path, content)
        assert trace.timeline.names[0] == "a"
        assert trace.health.truncated
        assert "what came before was read" in trace.warnings[0]
    whole = read_one(path, text[: text.rindex(b"}")])
    assert len(whole.timeline) == 2
    assert whole.health.truncated


def test_a_packed_trace_that_breaks_off(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        kernel(f"k{number}", int(rng.integers(1 << 40)), int(rng.integers(100))) for number in range(5_000)
    ]
    path = write(tmp_path / "t.json.gz", rows)
    packed = path.read_bytes()
    path.write_bytes(packed[: len(packed) // 2])
    (trace,) = read_trace(file_of(path))
    assert 1_000 < len(trace.timeline) < 4_000
    assert "gzip stream breaks off" in trace.warnings[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"hello", "not JSON"),
        (json.dumps({"a": 1}).encode(), "JSON without traceEvents"),
        (text_of([]), "no GPU events"),
        (text_of([host_row("cpu_op", "aten::mm", 1, 1)]), "no GPU events"),
        (text_of([kernel("k", "x", 1)]), r"no GPU event has usable times \(1"),
        (text_of([kernel("k", 1, 1)])[:-40], "no GPU events before"),
        (json.dumps(document([kernel("k", 1, 1)])).encode()[:20], "truncated before its first event"),
        (b'{"traceEvents": 3}', "JSON without traceEvents"),
    ],
)
def test_what_cannot_be_read_is_told_with_file_and_remedy(path: Path, content: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message) as raised:
        read_one(path, content)
    assert raised.value.path == str(path)
    assert raised.value.remedy


@pytest.mark.parametrize("kept", [3, 10, None])
def test_a_packed_trace_without_a_whole_block_is_not_called_empty(path: Path, kept: int | None) -> None:
    packed = bytearray(gzip.compress(text_of([kernel("k", 1, 1)])))
    packed[-6] ^= 1  # the checksum
    path.write_bytes(packed[:kept])
    with pytest.raises(TraceError, match="before its first event: the gzip stream"):
        read_trace(file_of(path))


def test_a_byte_order_mark_hides_neither_events_nor_metadata(path: Path) -> None:
    text = b"\xef\xbb\xbf" + text_of([kernel("k", 1, 1)], distributedInfo={"rank": 3, "world_size": 4})
    trace = read_one(path, text)
    assert (len(trace.timeline), trace.world_size, trace.warnings) == (1, 4, ())


def test_one_bad_file_loses_no_other(tmp_path: Path) -> None:
    write(tmp_path / "rank-0.json", [kernel("k", 1, 1)])
    write(tmp_path / "rank-1.json", b"garbage")
    write(tmp_path / "rank-2.json.gz", [kernel("k", 1, 1)])
    read = read_traces([tmp_path])
    assert [trace.rank for trace in read.traces] == [0, 2]
    (problem,) = read.problems
    assert "rank-1.json" in problem.path
    assert "1 of 3 ranks are missing (1)" in read.warnings[0]


def test_a_rank_that_a_packed_trace_tells_last(tmp_path: Path) -> None:
    for number, rank in (("a", 1), ("b", 0)):
        content = {"traceEvents": [kernel("k", 1, 1)], "distributedInfo": {"rank": rank, "world_size": 2}}
        write(tmp_path / f"{number}.json.gz", json.dumps(content).encode())
    read = read_traces([tmp_path])
    assert [(trace.rank, Path(trace.path).name) for trace in read.traces] == [
        (0, "b.json.gz"),
        (1, "a.json.gz"),
    ]
    assert {trace.rank_source for trace in read.traces} == {RankSource.DISTRIBUTED_INFO}
    assert read.problems == ()


def test_a_path_that_vanishes_between_finding_and_reading(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="does not exist"):
        read_trace(file_of(tmp_path / "gone.json"))
