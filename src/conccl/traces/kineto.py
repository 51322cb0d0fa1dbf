"""Reads a Kineto trace of any generation, CUDA or ROCm, in one pass and bounded memory: a `Trace` a GPU."""

from __future__ import annotations

from conccl.traces.assembly import Source, assemble
from conccl.traces.classify import HostCopies
from conccl.traces.event_stream import EventStream
from conccl.traces.events import FLOW_CATEGORIES, Category, gathered
from conccl.traces.flows import link_by_flows
from conccl.traces.gpu_rows import GpuRows
from conccl.traces.host_rows import HostRows
from conccl.traces.rules import Rules, built_in_rules
from conccl.traces.sources import TraceFile
from conccl.traces.trace import Trace
from conccl.traces.unpacking import BLOCK, Bytes, open_bytes


def read_trace(
    file: TraceFile, /, *, rules: Rules | None = None, host_copies: HostCopies = HostCopies.COPY
) -> tuple[Trace, ...]:
    """The traces in a file, one for each GPU with rows; GPUs are never united.

    The busiest comes first, or the first by number where nothing says which rank the file is.

    Raises `TraceError` where nothing can be read. A file that breaks off yields what came before, marked so.
    """
    rules = rules or built_in_rules()
    with open_bytes(file.path, member=file.member, offset=file.offset) as source:
        found = collect(source, file=file)
    if found.gpu.lack_correlations and len(found.gpu.lanes):
        with open_bytes(file.path, member=file.member, offset=file.offset) as source:
            flows = EventStream(source, path=file.name, wanted=FLOW_CATEGORIES)
            link_by_flows(flows, gpu=found.gpu, host=found.host)
    return assemble(found, rules=rules, host_copies=host_copies)


def collect(source: Bytes, /, *, file: TraceFile, block: int = BLOCK) -> Source:
    """What there is in a stream of bytes that is this file's content, read in blocks of so many bytes."""
    gpu, host = GpuRows(), HostRows()
    sync_rows = 0
    stream = EventStream(source, path=file.name, block=block)
    for batch in gathered(stream):
        gpu.append(batch)
        host.append(batch)
        sync_rows += len(batch.get(Category.SYNC, ()))
    return Source(
        path=file.name,
        rank=file.rank,
        rank_source=file.rank_source,
        world_size=file.world_size,
        metadata=stream.metadata,
        gpu=gpu,
        host=host,
        sync_rows=sync_rows,
        begun_rows=stream.begun,
        odd_events=stream.odd_events,
        first_odd_place=stream.first_odd_place,
        truncated=stream.truncated,
    )
