"""Links GPU rows to launches by the arrows drawn between them, for traces whose rows carry no correlation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from conccl.traces.columns import integers
from conccl.traces.events import Batch, Category, FlowEvent, LaunchArguments, LaunchEvent
from conccl.traces.gpu_rows import GpuRows
from conccl.traces.host_rows import HostRows
from conccl.traces.times import to_ns


def link_by_flows(batches: Iterable[Batch], /, *, gpu: GpuRows, host: HostRows) -> None:
    """Give rows the number of the arrow that ends where they start, and arrows' starts as launches.

    An arrow ends at the process, thread and time under which the row is drawn.
    """
    ends: dict[tuple[str, str, int], int] = {}
    for batch in batches:
        flows: list[FlowEvent] = batch.get(Category.FLOW, [])
        starts = [flow for flow in flows if flow.ph == "s"]
        if starts:
            host.append({Category.LAUNCH: [_launch(flow) for flow in starts]})
        finishes = [flow for flow in flows if flow.ph == "f"]
        times, _ = to_ns([flow.ts for flow in finishes])
        numbers = integers([flow.id for flow in finishes], default=-1)
        for flow, time_ns, number in zip(finishes, times.tolist(), numbers.tolist(), strict=True):
            ends[(str(flow.pid), str(flow.tid), time_ns)] = number
    gpu.columns.replace("correlation", _correlations(gpu, ends))


def _launch(flow: FlowEvent) -> LaunchEvent:
    arguments = LaunchArguments(correlation=flow.id)
    return LaunchEvent(ph="X", ts=flow.ts, pid=flow.pid, tid=flow.tid, args=arguments)


def _correlations(gpu: GpuRows, ends: dict[tuple[str, str, int], int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    places = [(str(process), str(thread)) for _, _, process, thread in gpu.lanes]
    lanes = gpu.columns.array("lane", dtype=np.int32).tolist()
    starts = gpu.columns.array("start_ns", dtype=np.int64).tolist()
    found = [ends.get((*places[lane], start), -1) for lane, start in zip(lanes, starts, strict=True)]
    return np.array(found, dtype=np.int64)
