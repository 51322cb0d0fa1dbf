"""A GEMM whose output goes into a collective: serial, or in chunks that travel beside the next ones."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from conccl.core.errors import InputError
from conccl.integrations.fused.job import Product
from conccl.integrations.fused.peers import (
    Passing,
    all_reduce_in_place,
    exchange_into,
    reduce_scatter_into,
)
from conccl.integrations.fused.products import product, product_into, products_into
from conccl.integrations.fused.rows import pieces
from conccl.strategies.ways import Chunked, Order, Serial, Tracked


def reduce_scattered(job: Product, /) -> Tensor:
    """This rank's block of rows of the sum of all ranks' products."""
    if job.peers.size == 1:
        return product(job.x, job.weight)
    match job.way:
        case Serial():
            return _reduce_scatter_serial(job)
        case Chunked(order=Order.STAGGERED) as way:
            return _reduce_scatter_staggered(job, way)
        case Chunked() as way:
            return _reduce_scatter_together(job, way)
        case Tracked() as way:
            found: Tensor = _tracked(job).reduce_scattered(job, way)
            return found


def all_reduced(job: Product, /) -> Tensor:
    """The sum of all ranks' products, on every rank."""
    out = job.empty(job.rows)
    if job.peers.size == 1:
        product_into(out, job.x, job.weight)
        return out
    if isinstance(job.way, Tracked):
        found: Tensor = _tracked(job).all_reduced(job, job.way)
        return found
    chunks = pieces(job.rows, 1)
    if isinstance(job.way, Chunked):
        if job.way.order is Order.STAGGERED:
            raise InputError(
                f"{job.call} sends all rows to all ranks: its chunks hold rows of all ranks. Leave out"
                " 'staggered'."
            )
        chunks = pieces(job.rows, job.way.chunks, sizes=job.way.sizes)
    works: list[Any] = []
    for index, (start, stop) in enumerate(chunks):
        with job.chunk(index, len(chunks)):
            product_into(out[start:stop], job.x[start:stop], job.weight)
            works.append(all_reduce_in_place(out[start:stop], job.peers))
    _finish(job, works)
    return out


def exchanged(job: Product, /, *, bias: Tensor | None) -> Tensor:
    """Block d of the product's rows goes to rank d; one block comes from each rank, in their order."""
    peers, blocks = job.peers, job.blocks
    if peers.size == 1:
        return product(job.x, job.weight, bias)
    mine = blocks.of(peers.rank)
    out = job.empty(peers.size * mine)
    match job.way:
        case Serial():
            with job.chunk(0, 1):
                made = product(job.x, job.weight, bias)
                sent = [blocks.of(rank) for rank in range(peers.size)]
                exchange_into(out, made, peers, got=[mine] * peers.size, sent=sent).wait()
        case Chunked(order=Order.STAGGERED) as way:
            _exchange_staggered(job, way, out.view(peers.size, mine, job.columns), bias)
        case Chunked() as way:
            _exchange_together(job, way, out.view(peers.size, mine, job.columns), bias)
        case Tracked() as way:
            out = _tracked(job).exchanged(job, way, bias=bias)
    return out


def _tracked(job: Product) -> Any:
    """The module of the tracked way, where it can be gone; its parts are an extra."""
    tracked = importlib.import_module("conccl.integrations.fused.tracked")
    tracked.require(job.call, job.x.device)
    return tracked


def _finish(job: Product, works: list[Any]) -> None:
    for index, work in enumerate(works):
        with job.chunk(index, len(works)):
            work.wait()


def _reduce_scatter_serial(job: Product) -> Tensor:
    blocks, peers = job.blocks, job.peers
    out = job.empty(blocks.longest)
    with job.chunk(0, 1):
        if blocks.is_even:
            made = product(job.x, job.weight)
        else:
            made = job.empty(blocks.longest * peers.size)
            product_into(made[: job.rows], job.x, job.weight)
            made[job.rows :].zero_()
        reduce_scatter_into(out, made, peers).wait()
    return out[: blocks.of(peers.rank)]


def _reduce_scatter_together(job: Product, way: Chunked) -> Tensor:
    """A chunk is the same piece of every rank's block, reduced by one collective."""
    blocks, peers = job.blocks, job.peers
    chunks = pieces(blocks.longest, way.chunks, ranks=peers.size, sizes=way.sizes)
    out = job.empty(blocks.longest)
    staging = job.empty(blocks.longest * peers.size)
    works: list[Any] = []
    for index, (start, stop) in enumerate(chunks):
        part = staging[start * peers.size : stop * peers.size]
        with job.chunk(index, len(chunks)):
            _make_pieces(job, part.view(peers.size, stop - start, job.columns), start, stop)
            works.append(reduce_scatter_into(out[start:stop], part, peers))
    _finish(job, works)
    return out[: blocks.of(peers.rank)]


def _make_pieces(job: Product, part: Tensor, start: int, stop: int) -> None:
    """Rows [start, stop) of every block; zeros where a block is too short for them."""
    outs, xs = [], []
    for rank in range(job.peers.size):
        begin, end = job.blocks.piece(rank, start, stop)
        outs.append(part[rank, : end - begin])
        xs.append(job.x[begin:end])
        part[rank, end - begin :].zero_()
    products_into(outs, xs, job.weight)


def _reduce_scatter_staggered(job: Product, way: Chunked) -> Tensor:
    """Each rank makes the next rank's block first and its own last; owners add what they are sent.

    Sums are made in fp32 where the elements are shorter, in the order of distance: the same in every run.
    """
    peers, mine = job.peers, job.blocks.of(job.peers.rank)
    sum_dtype = torch.promote_types(job.x.dtype, torch.float32)
    arrivals: list[tuple[int, Tensor, Passing]] = []
    for step in range(1, peers.size):
        to, source = (peers.rank + step) % peers.size, (peers.rank - step) % peers.size
        for index, (start, stop) in enumerate(pieces(job.blocks.longest, way.chunks, sizes=way.sizes)):
            begin, end = job.blocks.piece(to, start, stop)
            made, got = job.empty(end - begin), job.empty(max(0, min(mine, stop) - start))
            with job.chunk(index, way.chunks):
                if end > begin:
                    product_into(made, job.x[begin:end], job.weight)
                passing = Passing(peers, to=to, sent=made, source=source, got=got)
            arrivals.append((start, got, passing))
    begin, end = job.blocks.bounds(peers.rank)
    total = product(job.x[begin:end], job.weight).to(sum_dtype)
    for index, (start, got, passing) in enumerate(arrivals):
        with job.chunk(index % way.chunks, way.chunks):
            passing.wait()
        total[start : start + len(got)] += got
    return total.to(job.x.dtype)


def _exchange_together(job: Product, way: Chunked, out: Tensor, bias: Tensor | None) -> None:
    blocks, peers = job.blocks, job.peers
    chunks = pieces(blocks.longest, way.chunks, ranks=peers.size, sizes=way.sizes)
    under_way: list[tuple[int, int, Tensor, Any]] = []
    for index, (start, stop) in enumerate(chunks):
        bounds = [blocks.piece(rank, start, stop) for rank in range(peers.size)]
        sent = [end - begin for begin, end in bounds]
        made = job.empty(sum(sent))
        with job.chunk(index, len(chunks)):
            products_into(torch.split(made, sent), [job.x[begin:end] for begin, end in bounds], job.weight)
            if bias is not None:
                made.add_(bias)
            mine = sent[peers.rank]
            got = job.empty(peers.size * mine)
            work = exchange_into(got, made, peers, got=[mine] * peers.size, sent=sent)
        under_way.append((start, mine, got, work))
    for index, (start, count, got, work) in enumerate(under_way):
        with job.chunk(index, len(under_way)):
            work.wait()
        out[:, start : start + count] = got.view(peers.size, count, job.columns)


def _exchange_staggered(job: Product, way: Chunked, out: Tensor, bias: Tensor | None) -> None:
    peers, mine = job.peers, job.blocks.of(job.peers.rank)
    passings: list[Passing] = []
    for step in range(1, peers.size):
        to, source = (peers.rank + step) % peers.size, (peers.rank - step) % peers.size
        for index, (start, stop) in enumerate(pieces(job.blocks.longest, way.chunks, sizes=way.sizes)):
            begin, end = job.blocks.piece(to, start, stop)
            got = out[source, min(mine, start) : min(mine, stop)]
            with job.chunk(index, way.chunks):
                made = product(job.x[begin:end], job.weight, bias)
                passings.append(Passing(peers, to=to, sent=made, source=source, got=got))
    begin, end = job.blocks.bounds(peers.rank)
    product_into(out[peers.rank], job.x[begin:end], job.weight, bias)
    for index, passing in enumerate(passings):
        with job.chunk(index % way.chunks, way.chunks):
            passing.wait()
