"""A GEMM of rows that other ranks have: serial, and block by block as they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from conccl.core.errors import InputError
from conccl.integrations.fused.job import Product
from conccl.integrations.fused.peers import Passing, Peers, exchange_into, gather_into
from conccl.integrations.fused.products import product, product_into, products_into
from conccl.integrations.fused.rows import Blocks, pieces
from conccl.strategies.ways import Chunked, Order, Serial


def gathered_product(job: Product, rows: int, /, *, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The product of all ranks' rows, ``rows`` in all, and those rows; ``job.x`` are this rank's."""
    blocks = Blocks(rows=rows, ranks=job.peers.size)
    _require_block(job.call, len(job.x), blocks, job.peers)
    if job.peers.size == 1:
        return product(job.x, job.weight, bias), job.x.clone()
    if isinstance(job.way, Serial):
        with job.chunk(0, 1):
            gathered = gather_rows(job.x, blocks, job.peers)
            return product(gathered, job.weight, bias), gathered
    if not isinstance(job.way, Chunked):
        raise InputError(
            f"{job.call} by {job.way}: rows that a running kernel waits for are not offered yet."
            " Use serial or chunked."
        )
    gathering = _Gathering(
        job=job,
        blocks=blocks,
        gathered=job.x.new_empty((rows, job.x.shape[1])),
        out=job.empty(rows),
        bias=bias,
    )
    run = _staggered if job.way.order is Order.STAGGERED else _together
    run(gathering, job.way)
    return gathering.out, gathering.gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gathering:
    """Rows on their way in, and the product that is made of them."""

    job: Product
    blocks: Blocks
    gathered: Tensor
    out: Tensor
    bias: Tensor | None

    def own_rows(self) -> None:
        """What needs no peer."""
        begin, end = self.blocks.bounds(self.job.peers.rank)
        self.gathered[begin:end] = self.job.x
        self.multiply(begin, end)

    def multiply(self, begin: int, end: int, /) -> None:
        """The product of rows that have arrived."""
        if end > begin:
            product_into(self.out[begin:end], self.gathered[begin:end], self.job.weight, self.bias)


def gather_rows(x: Tensor, blocks: Blocks, peers: Peers, /) -> Tensor:
    """Every rank's rows, one behind the other."""
    if peers.size == 1:
        return x.clone()
    padded = _padded(x, blocks.longest)
    gathered = x.new_empty((blocks.longest * peers.size, *x.shape[1:]))
    gather_into(gathered, padded, peers).wait()
    return gathered[: blocks.rows]


def return_rows(x: Tensor, rows: int, peers: Peers, /) -> Tensor:
    """The way back of an exchange: block s of these rows goes to rank s, which had ``rows`` rows in all."""
    if peers.size == 1:
        return x.clone()
    blocks = Blocks(rows=rows, ranks=peers.size)
    got = [blocks.of(rank) for rank in range(peers.size)]
    out = x.new_empty((rows, x.shape[1]))
    mine = got[peers.rank]
    exchange_into(out, x.contiguous(), peers, got=got, sent=[mine] * peers.size).wait()
    return out


def _require_block(call: str, count: int, blocks: Blocks, peers: Peers) -> None:
    mine = blocks.of(peers.rank)
    if count != mine:
        raise InputError(
            f"{call}: rank {peers.rank} of {peers.size} gives {count} rows; of {blocks.rows} in all it has"
            f" {mine} (blocks as torch.chunk cuts them). Pass rows= where blocks differ in length."
        )


def _padded(x: Tensor, rows: int) -> Tensor:
    if len(x) == rows:
        return x.contiguous()
    padded = x.new_zeros((rows, *x.shape[1:]))
    padded[: len(x)] = x
    return padded


def _together(gathering: _Gathering, way: Chunked) -> None:
    """All gathers are issued at once; while the first is on its way, this rank's own rows are multiplied."""
    job, blocks = gathering.job, gathering.blocks
    peers, width = job.peers, job.x.shape[1]
    chunks = pieces(blocks.longest, way.chunks, ranks=peers.size, sizes=way.sizes, growing=True)
    padded = _padded(job.x, blocks.longest)
    under_way: list[tuple[Tensor, Any]] = []
    for index, (start, stop) in enumerate(chunks):
        staging = job.x.new_empty((peers.size * (stop - start), width))
        with job.chunk(index, len(chunks)):
            under_way.append((staging, gather_into(staging, padded[start:stop], peers)))
    gathering.own_rows()
    for index, ((start, stop), (staging, work)) in enumerate(zip(chunks, under_way, strict=True)):
        with job.chunk(index, len(chunks)):
            work.wait()
        _multiply_pieces(gathering, staging.view(peers.size, stop - start, width), start, stop)


def _multiply_pieces(gathering: _Gathering, staging: Tensor, start: int, stop: int) -> None:
    """The same piece of every other rank's block."""
    outs, xs = [], []
    for rank, arrived in enumerate(staging):
        if rank == gathering.job.peers.rank:
            continue
        begin, end = gathering.blocks.piece(rank, start, stop)
        gathering.gathered[begin:end] = arrived[: end - begin]
        outs.append(gathering.out[begin:end])
        xs.append(gathering.gathered[begin:end])
    products_into(outs, xs, gathering.job.weight)
    if gathering.bias is not None:
        for one in outs:
            one.add_(gathering.bias)


def _staggered(gathering: _Gathering, way: Chunked) -> None:
    """This rank's own rows first, then those of the rank before it, and so on: the order of arrival."""
    job, blocks = gathering.job, gathering.blocks
    peers, x = job.peers, job.x.contiguous()
    chunks = pieces(blocks.longest, way.chunks, sizes=way.sizes, growing=True)
    coming: list[tuple[int, int, int, Passing]] = []
    for step in range(1, peers.size):
        to, source = (peers.rank + step) % peers.size, (peers.rank - step) % peers.size
        for index, (start, stop) in enumerate(chunks):
            begin, end = blocks.piece(source, start, stop)
            got = gathering.gathered[begin:end]
            with job.chunk(index, len(chunks)):
                passing = Passing(peers, to=to, sent=x[start:stop], source=source, got=got)
            coming.append((index, begin, end, passing))
    gathering.own_rows()
    for index, begin, end, passing in coming:
        with job.chunk(index, len(chunks)):
            passing.wait()
        gathering.multiply(begin, end)
