"""The traces of a torch.profiler session that is still in memory: no file, no export.

Duck-typed, so that torch is not imported: what is used is ``prof.profiler.kineto_results.events()``, whose
entries have times in ns, Kineto's category (``activity_type``) and its arguments (``metadata_json``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from conccl.core.errors import InputError
from conccl.traces.assembly import Source, assemble
from conccl.traces.classify import HostCopies
from conccl.traces.events import (
    CATEGORIES,
    GPU_WORK,
    Batch,
    Category,
    GpuArguments,
    GpuEvent,
    HostEvent,
    LaunchArguments,
    LaunchEvent,
)
from conccl.traces.gpu_rows import GpuRows
from conccl.traces.host_rows import COMMUNICATION_PREFIXES, HostRows
from conccl.traces.metadata import DeviceProperties, Metadata
from conccl.traces.rules import Rules, built_in_rules
from conccl.traces.trace import RankSource, Trace

PATH = "live profiler"
"""What stands where a trace from a file has its path."""

_decode_arguments = msgspec.json.Decoder(GpuArguments).decode


def is_profiler(value: object, /) -> bool:
    """Whether this looks like a ``torch.profiler.profile``."""
    return hasattr(value, "profiler") and hasattr(value, "export_chrome_trace")


def traces_of_profiler(
    profiler: Any, /, *, rules: Rules | None = None, host_copies: HostCopies = HostCopies.COPY
) -> tuple[Trace, ...]:
    """One trace for each GPU that worked while the ``torch.profiler.profile`` recorded, the busiest first.

    The profiler must have stopped (or be in its ``on_trace_ready``). Rank and world size are those of
    torch.distributed where it is initialised. Raises `TraceError` where no GPU worked.
    """
    gpu, host = GpuRows(), HostRows()
    batch = _batch(_events(profiler))
    gpu.append(batch)
    host.append(batch)
    rank, world_size = _rank()
    source = Source(
        path=PATH,
        rank=rank,
        rank_source=RankSource.DISTRIBUTED_INFO if world_size else RankSource.ORDER,
        world_size=world_size,
        metadata=Metadata(devices=_devices(gpu)),
        gpu=gpu,
        host=host,
        sync_rows=len(batch.get(Category.SYNC, ())),
    )
    return assemble(source, rules=rules or built_in_rules(), host_copies=host_copies)


def _events(profiler: Any) -> Iterable[Any]:
    inner = getattr(profiler, "profiler", None)
    results = getattr(inner, "kineto_results", None)
    if results is None:
        raise InputError(
            f"{type(profiler).__name__} holds no events. Give a torch.profiler.profile that has stopped,"
            " or call this in its on_trace_ready."
        )
    events: Iterable[Any] = results.events()
    return events


def _batch(events: Iterable[Any]) -> Batch:
    batch: Batch = {}
    for event in events:
        category = _category(event)
        if category in GPU_WORK:
            batch.setdefault(category, []).append(_gpu_event(event))
        elif category is Category.LAUNCH:
            arguments = LaunchArguments(correlation=event.correlation_id())
            batch.setdefault(category, []).append(
                LaunchEvent(
                    ph="X", name=event.name(), ts=_us(event.start_ns()), tid=_thread(event), args=arguments
                )
            )
        elif category is not None:
            batch.setdefault(category, []).append(_host_event(event))
    return batch


def _category(event: Any) -> Category | None:
    """Kineto's category; where torch does not tell it, by device and name."""
    told = getattr(event, "activity_type", None)
    if told is not None:
        return CATEGORIES.get(str(told()).lower())
    name = event.name()
    on_gpu = str(event.device_type()).rpartition(".")[2] in {"CUDA", "HIP", "XPU", "PrivateUse1"}
    if event.is_user_annotation():
        return Category.GPU_LABEL if on_gpu else Category.LABEL
    if on_gpu:
        kinds = {"Memcpy": Category.MEMCPY, "Memset": Category.MEMSET}
        return kinds.get(name[:6], Category.KERNEL)
    return Category.LAUNCH if name.startswith(("cuda", "cuL", "cuG", "hip")) else Category.OP


def _gpu_event(event: Any) -> GpuEvent:
    try:
        arguments = _decode_arguments(_braced(event.metadata_json()))
    except (msgspec.MsgspecError, AttributeError):
        arguments = GpuArguments()
    arguments.device = event.device_index()
    if arguments.stream is None:
        arguments.stream = event.device_resource_id()
    if arguments.correlation == -1:
        arguments.correlation = event.correlation_id()
    return GpuEvent(
        ph="X", name=event.name(), ts=_us(event.start_ns()), dur=_us(event.duration_ns()), args=arguments
    )


def _host_event(event: Any) -> HostEvent:
    name = event.name()
    said: dict[str, Any] = {"Input Dims": event.shapes()} if any(event.shapes()) else {}
    if said or name.startswith(COMMUNICATION_PREFIXES):
        said["Input type"] = list(event.dtypes())
    if name.startswith(COMMUNICATION_PREFIXES):
        said |= {key: _value(text) for key, text in getattr(event, "extra_meta", dict)().items()}
    return HostEvent(
        ph="X",
        name=name,
        ts=_us(event.start_ns()),
        dur=_us(event.duration_ns()),
        tid=_thread(event),
        args=msgspec.Raw(json.dumps(said).encode()),
    )


def _us(time_ns: int) -> msgspec.Raw:
    """Nanoseconds as the text of microseconds that Kineto would write."""
    sign, magnitude = ("-", -time_ns) if time_ns < 0 else ("", time_ns)
    return msgspec.Raw(f"{sign}{magnitude // 1000}.{magnitude % 1000:03d}".encode())


def _thread(event: Any) -> int:
    """The system's thread: torch's own numbers are missing for runtime calls."""
    return int(event.device_resource_id())


def _braced(text: str) -> bytes:
    """Kineto's arguments as an object; it gives what stands between the braces."""
    return (text if text.lstrip().startswith("{") else "{" + text + "}").encode()


def _value(text: Any) -> Any:
    """A value of ``extra_meta``, which torch keeps as JSON text."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


def _rank() -> tuple[int, int | None]:
    """Rank and world size of torch.distributed, where it is there and initialised."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0, None
    return distributed.get_rank(), distributed.get_world_size()


def _devices(gpu: GpuRows) -> dict[str, DeviceProperties]:
    """Name and SMs of the GPUs with rows, as torch.cuda knows them."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not cuda.is_initialized():
        return {}
    count = cuda.device_count()
    indices = {device for device, *_ in gpu.lanes if isinstance(device, int) and 0 <= device < count}
    found = {index: cuda.get_device_properties(index) for index in indices}
    return {
        str(index): DeviceProperties(name=properties.name, sm_count=properties.multi_processor_count)
        for index, properties in found.items()
    }
