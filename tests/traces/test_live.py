"""A profiler in memory gives the same trace as its file would."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conccl.core.errors import InputError, TraceError
from conccl.core.ops import CollectiveKind
from conccl.core.timeline import Activity
from conccl.traces.live import is_profiler, traces_of_profiler
from made_kineto import read_one

BASE_NS = 1_796_076_746_645_077_353


class FakeEvent:
    """A ``_KinetoEvent`` as torch 2.13 has it: everything is a method."""

    def __init__(self, category: str, name: str, start_ns: int, duration_ns: int, /, **fields: Any) -> None:
        on_gpu = category in ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync")
        self._values = {
            "activity_type": category,
            "name": name,
            "start_ns": BASE_NS + start_ns,
            "duration_ns": duration_ns,
            "device_type": "DeviceType.CUDA" if on_gpu else "DeviceType.CPU",
            "device_index": 0 if on_gpu else 4711,
            "device_resource_id": 7 if on_gpu else 4712,
            "correlation_id": 0,
            "linked_correlation_id": 0,
            "metadata_json": "",
            "extra_meta": {},
            "shapes": [],
            "dtypes": [],
            "is_user_annotation": "annotation" in category,
            **fields,
        }

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__["_values"]
        if name not in values:
            raise AttributeError(name)
        return lambda: values[name]

    def without(self, *names: str) -> FakeEvent:
        for name in names:
            del self._values[name]
        return self


def profiler_of(events: list[FakeEvent]) -> Any:
    results = SimpleNamespace(events=lambda: events)
    return SimpleNamespace(profiler=SimpleNamespace(kineto_results=results), export_chrome_trace=None)


def events_of_a_step() -> list[FakeEvent]:
    metadata = '"device": 0, "stream": 20, "correlation": 2, "grid": [4, 1, 1], "block": [64, 1, 1]'
    said = (
        metadata.replace("20", "21").replace('"correlation": 2', '"correlation": 3')
        + ', "Collective name": "allreduce"'
    )
    return [
        FakeEvent("user_annotation", "ProfilerStep#3", 0, 9_000),
        FakeEvent("cpu_op", "aten::mm", 90, 500, shapes=[[2, 3], [3, 4]]),
        FakeEvent("cuda_runtime", "cudaLaunchKernel", 100, 50, correlation_id=2),
        FakeEvent("cuda_runtime", "cudaLaunchKernel", 700, 50, correlation_id=3),
        FakeEvent("cuda_runtime", "cudaMemcpyAsync", 900, 50, correlation_id=4),
        FakeEvent("kernel", "sgemm", 1_001, 2_003, metadata_json=metadata),
        FakeEvent("kernel", "ncclDevKernel_AllReduce", 1_500, 4_001, metadata_json=said),
        FakeEvent("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 9_100, 10, correlation_id=4),
        FakeEvent("cuda_sync", "Stream Sync", 1, 2),
        FakeEvent("python_function", "module.py(3): f", 1, 2),
    ]


def test_a_step_in_memory() -> None:
    (trace,) = traces_of_profiler(profiler_of(events_of_a_step()))
    timeline = trace.timeline
    assert timeline.start_ns.tolist() == [BASE_NS + 1_001, BASE_NS + 1_500, BASE_NS + 9_100]
    assert timeline.duration_ns.tolist() == [2_003, 4_001, 10]
    assert [span.activity for span in timeline] == [Activity.COMPUTE, Activity.COMMUNICATION, Activity.COPY]
    assert [span.lane.stream for span in timeline] == ["20", "21", "7"]
    assert timeline.columns["step"].tolist() == [0, 0, 0]
    assert timeline.columns["ctas"].tolist() == [4, 4, 0]
    assert trace.collectives[0].kind is CollectiveKind.ALL_REDUCE
    assert [step.number for step in trace.steps] == [3]
    assert trace.health.sync_rows == 1
    assert trace.path == "live profiler"


def test_a_torch_that_does_not_tell_categories() -> None:
    events = [
        event.without("activity_type", "metadata_json", "extra_meta") for event in events_of_a_step()[:-2]
    ]
    for event, correlation in zip(events[5:7], (2, 3), strict=True):
        event._values["correlation_id"] = correlation
    (trace,) = traces_of_profiler(profiler_of(events))
    assert [span.activity for span in trace.timeline] == [
        Activity.COMPUTE,
        Activity.COMMUNICATION,
        Activity.COPY,
    ]
    assert trace.timeline.columns["step"].tolist() == [0, 0, 0]


def test_communication_labels_in_memory() -> None:
    events = [
        FakeEvent(
            "cpu_op",
            "record_param_comms",
            0,
            500,
            extra_meta={"Collective name": '"all_to_all"', "In msg nelems": "8", "dtype": '"Float"'},
        ),
        FakeEvent("cuda_runtime", "cudaLaunchKernel", 100, 50, correlation_id=2),
        FakeEvent("kernel", "never_heard_of", 1_001, 2_003, correlation_id=2),
    ]
    (trace,) = traces_of_profiler(profiler_of(events))
    assert trace.collectives[0].kind is CollectiveKind.ALL_TO_ALL
    assert trace.collectives[0].in_elements == 8


@pytest.mark.parametrize("value", [SimpleNamespace(profiler=None), SimpleNamespace(), 3])
def test_a_profiler_without_results(value: object) -> None:
    with pytest.raises(InputError, match="holds no events"):
        traces_of_profiler(value)


def test_no_gpu_work() -> None:
    with pytest.raises(TraceError, match="no GPU events"):
        traces_of_profiler(profiler_of([FakeEvent("cpu_op", "aten::mm", 1, 1)]))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_a_real_profile_of_the_cpu(tmp_path: Path) -> None:
    """The names that are used exist in torch; rows of a GPU are added by hand to what torch recorded."""
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiler:
        with torch.profiler.record_function("my label"):
            torch.ones(4, 4) @ torch.ones(4, 4)
        profiler.step()
    assert is_profiler(profiler)
    with pytest.raises(TraceError, match="no GPU events"):
        traces_of_profiler(profiler)
    recorded = list(profiler.profiler.kineto_results.events())
    row = FakeEvent("kernel", "gemm", recorded[0].start_ns() - BASE_NS, 5)
    (live,) = traces_of_profiler(profiler_of([*recorded, row]))
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    document = json.loads((tmp_path / "t.json").read_text())
    label = next(event for event in document["traceEvents"] if event.get("name") == "my label")
    document["traceEvents"].append(
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": label["ts"], "dur": 0.005, "pid": 0, "tid": 7}
    )
    filed = read_one(tmp_path / "again.json", json.dumps(document).encode())
    assert len(live.timeline) == len(filed.timeline) == 1
    for trace in (live, filed):
        assert "my label" in [trace.annotations.names[number] for number in trace.annotations.name_id]
    assert len(live.annotations) == len(filed.annotations)
