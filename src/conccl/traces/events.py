"""Events of a trace as they stand in the file: only the fields that are asked for, times as text.

msgspec skips what a type does not name. `conccl.traces.times` reads times exactly; arguments of labels and
operators stay text until one turns out to be wanted.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

NOTHING = msgspec.Raw(b"")
NO_ARGUMENTS = msgspec.Raw(b"{}")


class Category(enum.Enum):
    """What the reader does with an event, by Kineto's ``cat``."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    LAUNCH = "launch"
    LABEL = "label"
    GPU_LABEL = "label of GPU work"
    OP = "operator"
    SYNC = "synchronisation"
    FLOW = "arrow from a launch to its GPU row"


GPU_WORK = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)

CATEGORIES = {
    "kernel": Category.KERNEL,
    "concurrent_kernel": Category.KERNEL,
    "gpu_memcpy": Category.MEMCPY,
    "memcpy": Category.MEMCPY,
    "gpu_memset": Category.MEMSET,
    "memset": Category.MEMSET,
    "cuda_runtime": Category.LAUNCH,
    "cuda_driver": Category.LAUNCH,
    "hip_runtime": Category.LAUNCH,
    "hip_driver": Category.LAUNCH,
    "xpu_runtime": Category.LAUNCH,
    "xpu_driver": Category.LAUNCH,
    "runtime": Category.LAUNCH,
    "driver": Category.LAUNCH,
    "privateuse1_runtime": Category.LAUNCH,
    "privateuse1_driver": Category.LAUNCH,
    "user_annotation": Category.LABEL,
    "gpu_user_annotation": Category.GPU_LABEL,
    "cpu_op": Category.OP,
    "operator": Category.OP,
    "cuda_sync": Category.SYNC,
    "hip_sync": Category.SYNC,
    "gpu_sync": Category.SYNC,
}
"""In lower case; old generations of Kineto capitalise some."""

FLOW_CATEGORIES = {"ac2g": Category.FLOW, "async_cpu_to_gpu": Category.FLOW, "async": Category.FLOW}
"""Wanted only where GPU rows carry no correlation."""


class GpuArguments(msgspec.Struct, gc=False):
    """What the reader uses of a GPU row's arguments."""

    device: Any = None
    stream: Any = None
    correlation: Any = -1
    grid: Any = None
    block: Any = None
    nbytes: Any = msgspec.field(default=0, name="bytes")
    graph_node: Any = msgspec.field(default=0, name="graph node id")
    from_device: Any = msgspec.field(default=None, name="fromDevice")
    to_device: Any = msgspec.field(default=None, name="toDevice")
    collective: Any = msgspec.field(default=None, name="Collective name")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    group_size: Any = msgspec.field(default=None, name="Group size")
    sequence: Any = msgspec.field(default=None, name="Seq")
    dtype: Any = None
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")


class LaunchArguments(msgspec.Struct, gc=False):
    """What the reader uses of a runtime call's arguments."""

    correlation: Any = -1


class OpArguments(msgspec.Struct, gc=False):
    """What the reader uses of a host operator's arguments."""

    input_dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")


class TensorArguments(msgspec.Struct, gc=False):
    """What the reader uses of the arguments of an operator whose inputs are kept, beside their sizes."""

    input_types: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    input_strides: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Strides")
    input_values: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")


class Event(msgspec.Struct, gc=False):
    """One entry of ``traceEvents``, of whatever category."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING
    pid: Any = None
    tid: Any = None
    id: Any = None
    args: msgspec.Raw = NO_ARGUMENTS


class GpuEvent(msgspec.Struct, gc=False):
    """A kernel, copy or memset."""

    ph: Literal["X"]
    name: str = ""
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING
    pid: Any = None
    tid: Any = None
    args: GpuArguments | None = None


class LaunchEvent(msgspec.Struct, gc=False):
    """A call of the CUDA or HIP runtime or driver."""

    ph: Literal["X"]
    name: str = ""
    ts: msgspec.Raw = NOTHING
    pid: Any = None
    tid: Any = None
    args: LaunchArguments | None = None


class HostEvent(msgspec.Struct, gc=False):
    """A label or an operator of the host (or a label's shadow on the GPU)."""

    ph: Literal["X"]
    name: str = ""
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING
    pid: Any = None
    tid: Any = None
    args: msgspec.Raw = NO_ARGUMENTS


class FlowEvent(msgspec.Struct, gc=False):
    """One end of an arrow: "s" where it starts, at the launch, "f" where it ends, at the GPU row."""

    ph: str = ""
    id: Any = None
    ts: msgspec.Raw = NOTHING
    pid: Any = None
    tid: Any = None


Specific = GpuEvent | LaunchEvent | HostEvent | FlowEvent

SHAPES: dict[Category, type[Specific]] = {
    Category.KERNEL: GpuEvent,
    Category.MEMCPY: GpuEvent,
    Category.MEMSET: GpuEvent,
    Category.LAUNCH: LaunchEvent,
    Category.LABEL: HostEvent,
    Category.GPU_LABEL: HostEvent,
    Category.OP: HostEvent,
    Category.SYNC: HostEvent,
    Category.FLOW: FlowEvent,
}
"""The type of each category's events."""

Batch = dict[Category, list[Any]]
"""Complete ("X") events by category; each list holds the type that `SHAPES` names."""

BATCH_EVENTS = 8192
"""Events that are worth being put into columns at once; more only cost memory."""


def gathered(batches: Iterable[Batch], /) -> Iterator[Batch]:
    """The same events in fewer batches."""
    waiting: Batch = {}
    count = 0
    for batch in batches:
        for category, events in batch.items():
            waiting.setdefault(category, []).extend(events)
            count += len(events)
        if count >= BATCH_EVENTS:
            yield waiting
            waiting, count = {}, 0
    if waiting:
        yield waiting
