"""Reads a Kineto trace of any generation, CUDA or ROCm, in one pass and bounded memory: a `Trace` a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from conccl.traces.assembly import Source, assemble
from conccl.traces.classify import HostCopies
from conccl.traces.event_stream import EventStream
from conccl.traces.events import Event
from conccl.traces.gpu_rows import GpuRows
from conccl.traces.host_rows import HostRows
from conccl.traces.rules import RowKind, Rules, built_in_rules
from conccl.traces.sources import TraceFile
from conccl.traces.trace import Trace
from conccl.traces.unpacking import open_bytes

_GPU_KINDS = {
    "kernel": RowKind.KERNEL,
    "concurrent_kernel": RowKind.KERNEL,
    "gpu_memcpy": RowKind.MEMCPY,
    "memcpy": RowKind.MEMCPY,
    "gpu_memset": RowKind.MEMSET,
    "memset": RowKind.MEMSET,
}
_LAUNCH = "launch"
_LABEL = "label"
_GPU_LABEL = "GPU label"
_OP = "operator"
_SYNC = "synchronisation"
_OTHER = "other"

_KINDS: dict[str, str] = {
    **_GPU_KINDS,
    "cuda_runtime": _LAUNCH,
    "cuda_driver": _LAUNCH,
    "hip_runtime": _LAUNCH,
    "hip_driver": _LAUNCH,
    "xpu_runtime": _LAUNCH,
    "runtime": _LAUNCH,
    "driver": _LAUNCH,
    "privateuse1_runtime": _LAUNCH,
    "privateuse1_driver": _LAUNCH,
    "user_annotation": _LABEL,
    "gpu_user_annotation": _GPU_LABEL,
    "cpu_op": _OP,
    "operator": _OP,
    "cuda_sync": _SYNC,
    "hip_sync": _SYNC,
    "gpu_sync": _SYNC,
}
"""Kineto's categories in lower case: old generations capitalise them."""


def read_trace(
    file: TraceFile, /, *, rules: Rules | None = None, host_copies: HostCopies = HostCopies.COPY
) -> tuple[Trace, ...]:
    """The traces in a file, one for each GPU with rows, the busiest first; GPUs are never united.

    Raises `TraceError` where nothing can be read. A file that breaks off yields what came before, marked so.
    """
    reader = _Reader()
    with open_bytes(file.path, member=file.member, offset=file.offset) as source:
        stream = EventStream(source, path=file.name)
        for batch in stream:
            reader.append(batch, with_shapes=b'"Input Dims"' in stream.batch_text)
    return assemble(
        Source(
            path=file.name,
            rank=file.rank,
            rank_source=file.rank_source,
            world_size=file.world_size,
            metadata=stream.metadata,
            gpu=reader.gpu,
            host=reader.host,
            sync_rows=reader.sync_rows,
            odd_events=stream.odd_events,
            first_odd_place=stream.first_odd_place,
            truncated=stream.truncated,
        ),
        rules=rules or built_in_rules(),
        host_copies=host_copies,
    )


class _Reader:
    """Sorts events by category and hands them to the columns."""

    def __init__(self) -> None:
        self.gpu = GpuRows()
        self.host = HostRows()
        self.sync_rows = 0
        self._kinds = dict(_KINDS)

    def append(self, events: Sequence[Event], /, *, with_shapes: bool) -> None:
        """One batch of events."""
        batches = self._sorted(events)
        for kind in RowKind:
            if kind in batches:
                self.gpu.append(batches[kind], kind)
        if _LAUNCH in batches:
            self.host.append_launches(batches[_LAUNCH])
        if _LABEL in batches:
            self.host.append_labels(batches[_LABEL], on_gpu=False)
        if _GPU_LABEL in batches:
            self.host.append_labels(batches[_GPU_LABEL], on_gpu=True)
        if _OP in batches:
            self.host.append_ops(batches[_OP], with_shapes=with_shapes)
        self.sync_rows += len(batches.get(_SYNC, ()))

    def _sorted(self, events: Sequence[Event]) -> dict[str, list[Event]]:
        """The complete ("X") events by what they are."""
        kinds = self._kinds
        batches: dict[str, list[Event]] = {}
        for event in events:
            if event.ph == "X":
                kind = kinds.get(event.cat) or self._learn(event.cat)
                batches.setdefault(kind, []).append(event)
        batches.pop(_OTHER, None)
        return batches

    def _learn(self, category: str) -> str:
        return self._kinds.setdefault(category, _KINDS.get(category.lower(), _OTHER))
