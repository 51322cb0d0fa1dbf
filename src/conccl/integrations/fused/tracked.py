"""The tracked way on a GPU: one persistent GEMM, and transfers that its counters release while it runs.

Needs CUDA, Triton and cuda-bindings. The kernel leaves SMs to NCCL, as a persistent kernel gives none back
before its end; transfers over the host link need none. Not yet measured: "auto" does not take this way before
a table of measurements speaks for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conccl.core.errors import InputError, MissingExtraError
from conccl.gpu.tracking.driver import CudaDriver
from conccl.gpu.tracking.tiles import Span, tile_order
from conccl.gpu.tracking.trigger import Counters, Watchdog
from conccl.integrations.fused.job import Product
from conccl.integrations.fused.peers import all_reduce_in_place, exchange_into, reduce_scatter_into
from conccl.integrations.fused.rows import Blocks, pieces
from conccl.strategies.ways import Tracked

_Stream: Any = torch.cuda.Stream

LIBRARY_SMS = 16
"""SMs that the GEMM leaves to NCCL's kernels: past the knee of their bandwidth on NVLink."""


def spans_of_blocks(blocks: Blocks, chunks: list[tuple[int, int]], rank: int, /) -> Iterator[Span]:
    """Chunks that are the same piece of every rank's block, the next rank's first and this rank's last.

    A chunk's rows of the output lie together, rank by rank, as its collective wants them.
    """
    for chunk, (start, stop) in enumerate(chunks):
        for step in range(1, blocks.ranks + 1):
            owner = (rank + step) % blocks.ranks
            begin, end = blocks.piece(owner, start, stop)
            out_row = start * blocks.ranks + owner * (stop - start)
            yield Span(chunk=chunk, x_row=begin, out_row=out_row, rows=end - begin)


def spans_in_order(chunks: list[tuple[int, int]], /) -> Iterator[Span]:
    """Chunks of rows as they lie."""
    for chunk, (start, stop) in enumerate(chunks):
        yield Span(chunk=chunk, x_row=start, out_row=start, rows=stop - start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A GEMM and what each of its chunks releases."""

    name: str
    rank: int
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    activation: str
    out: Tensor
    spans: tuple[Span, ...]
    left_sms: int
    """SMs that the kernel does not take."""

    def run(self, transfer: Callable[[int], Any], /, *, wait: bool) -> None:
        """Enqueue the GEMM, and ``transfer(chunk)`` on a stream of its own when that chunk is made.

        A transfer returns what its completion can be waited for by, or None. The current stream goes on
        when all are complete; ``wait``: the host too.
        """
        from conccl.gpu.tracking.gemm import Blocks as Sizes  # noqa: PLC0415 (Triton is an extra)
        from conccl.gpu.tracking.gemm import Tracking, tracked_gemm  # noqa: PLC0415

        device = self.x.device
        here, there, rescue = torch.cuda.current_stream(device), *_streams(device.index)
        sizes = Sizes.of(self.x, len(self.weight))
        order = tile_order(self.spans, columns=len(self.weight), block_m=sizes.m, block_n=sizes.n)
        table = _table(self.spans, (len(self.weight), sizes.m, sizes.n), device)
        counters = torch.zeros(len(order.by_chunk), dtype=torch.int32, device=device)
        there.wait_stream(here)  # the counters are 0 before anyone waits for them
        tracked_gemm(
            self.out,
            self.x,
            self.weight,
            self.bias,
            order=order,
            blocks=sizes,
            tracking=Tracking(counters=counters),
            activation=self.activation,
            ctas=max(1, _sms(device.index) - self.left_sms),
            tiles=table,
        )
        watchdog = _watchdog()
        call = watchdog.call(
            self.name,
            rank=self.rank,
            counters=Counters(address=counters.data_ptr(), full=order.by_chunk),
            stream=there.cuda_stream,
            rescue=rescue.cuda_stream,
        )
        works: list[Any] = []
        with torch.cuda.stream(there):
            for chunk in range(len(order.by_chunk)):
                call.after(chunk, lambda chunk=chunk: works.append(transfer(chunk)))  # type: ignore[misc]
            for work in works:
                if work is not None:
                    work.wait()  # this stream's wait, not the host's
        for used in (counters, self.out, self.x):
            used.record_stream(there)
        watchdog.watch(call)
        here.wait_stream(there)
        if wait:
            call.wait()


def reduce_scattered(job: Product, way: Tracked, /) -> Tensor:
    """This rank's block of rows of the sum of all ranks' products."""
    blocks, peers = job.blocks, job.peers
    chunks = pieces(blocks.longest, way.chunks, ranks=peers.size)
    out = job.empty(blocks.longest)
    staging = job.empty(blocks.longest * peers.size)
    if not blocks.is_even:
        staging.zero_()  # rows that short blocks do not have
    spans = tuple(spans_of_blocks(blocks, chunks, peers.rank))

    def transfer(chunk: int) -> Any:
        start, stop = chunks[chunk]
        part = staging[start * peers.size : stop * peers.size]
        return reduce_scatter_into(out[start:stop], part, peers)

    _released(job, out=staging, spans=spans).run(transfer, wait=False)
    return out[: blocks.of(peers.rank)]


def all_reduced(job: Product, way: Tracked, /) -> Tensor:
    """The sum of all ranks' products, on every rank."""
    out = job.empty(job.rows)
    chunks = pieces(job.rows, way.chunks)

    def transfer(chunk: int) -> Any:
        start, stop = chunks[chunk]
        return all_reduce_in_place(out[start:stop], job.peers)

    _released(job, out=out, spans=tuple(spans_in_order(chunks))).run(transfer, wait=False)
    return out


def exchanged(job: Product, way: Tracked, /, *, bias: Tensor | None) -> Tensor:
    """Block d of the product's rows to rank d; blocks must be of one length."""
    blocks, peers = job.blocks, job.peers
    if not blocks.is_even:
        raise InputError(
            f"{job.call} by {way} of {job.rows} rows among {peers.size} ranks: blocks must be of one length."
            " Use chunked."
        )
    chunks = pieces(blocks.longest, way.chunks, ranks=peers.size)
    staging = job.empty(job.rows)
    arrived = job.empty(job.rows)

    def transfer(chunk: int) -> Any:
        start, stop = chunks[chunk]
        each = [stop - start] * peers.size
        rows = slice(start * peers.size, stop * peers.size)
        return exchange_into(arrived[rows], staging[rows], peers, got=each, sent=each)

    spans = tuple(spans_of_blocks(blocks, chunks, peers.rank))
    _released(job, out=staging, spans=spans, bias=bias).run(transfer, wait=False)
    out = job.empty(job.rows).view(peers.size, blocks.longest, job.columns)
    for start, stop in chunks:
        part = arrived[start * peers.size : stop * peers.size]
        out[:, start:stop] = part.view(peers.size, stop - start, job.columns)
    return out.flatten(0, 1)


def _released(job: Product, *, out: Tensor, spans: tuple[Span, ...], bias: Tensor | None = None) -> Released:
    return Released(
        name=job.call,
        rank=job.peers.rank,
        x=job.x,
        weight=job.weight,
        bias=bias,
        activation="none",
        out=out,
        spans=spans,
        left_sms=LIBRARY_SMS,
    )


def require(call: str, device: torch.device, /) -> None:
    """Refuse the tracked way where something that it needs is not there, and say what."""
    if device.type != "cuda":
        raise InputError(
            f"{call} by tracked needs a CUDA GPU; these tensors are on {device}. Use serial or chunked."
        )
    if torch.cuda.is_current_stream_capturing():
        raise InputError(f"{call} by tracked cannot be captured in a CUDA graph. Use chunked there.")
    try:
        import triton  # noqa: F401, PLC0415 (an extra)
    except ImportError as error:
        raise MissingExtraError(module="triton", extra="gpu") from error


@functools.cache
def _watchdog() -> Watchdog:
    return Watchdog(CudaDriver())


@functools.cache
def _streams(index: int) -> tuple[Any, Any]:
    """The stream of transfers, and one that releases them when they are stuck."""
    return _Stream(index, priority=-1), _Stream(index)


@functools.cache
def _sms(index: int) -> int:
    return int(torch.cuda.get_device_properties(index).multi_processor_count)


@functools.lru_cache(maxsize=256)
def _table(spans: tuple[Span, ...], sizes: tuple[int, int, int], device: torch.device) -> Tensor:
    """The order in device memory, kept for the next call of these sizes."""
    columns, block_m, block_n = sizes
    order = tile_order(spans, columns=columns, block_m=block_m, block_n=block_n)
    return torch.from_numpy(order.table).to(device)
