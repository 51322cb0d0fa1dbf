"""A GEMM and the host link: its output to the host or its input from there, chunk by chunk, by engines."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from conccl.core.errors import InputError
from conccl.integrations.fused.choosing import chosen
from conccl.integrations.fused.products import activated, product, product_into
from conccl.integrations.fused.rows import pieces
from conccl.strategies.ways import Chunked, Order, Serial, Tracked, Way

_Stream: Any = torch.cuda.Stream


def offloaded(x: Tensor, weight: Tensor, bias: Tensor | None, /, *, activation: str, way: str) -> Tensor:
    """activation(x[m, k] x weight[n, k]^T + bias) in host memory (pinned where x is on a GPU), complete."""
    call = "gemm_offload"
    picked = _way(call, x, weight, way)
    host = torch.empty((len(x), len(weight)), dtype=x.dtype, pin_memory=x.is_cuda)
    match picked:
        case Serial():
            host.copy_(activated(product(x, weight, bias), activation))
        case Chunked():
            made = x.new_empty(host.shape)
            with _Side(x.device) as side:
                for start, stop in pieces(len(x), picked.chunks, sizes=picked.sizes):
                    part = made[start:stop]
                    product_into(part, x[start:stop], weight, bias)
                    part.copy_(activated(part, activation))
                    side.copy(host[start:stop], part)
            side.wait_on_host()
        case Tracked():
            _offload_tracked(host, x, weight, bias, activation=activation, chunks=picked.chunks)
    return host


def prefetched(
    x: Tensor, weight: Tensor, bias: Tensor | None, /, *, activation: str, way: str
) -> tuple[Tensor, Tensor]:
    """activation(x x weight[n, k]^T + bias) of an x[m, k] in host memory, and x where the weight is."""
    picked = _way("prefetch_gemm", x, weight, way)
    if isinstance(picked, Tracked):
        raise InputError(
            f"prefetch_gemm by {picked}: rows that a running kernel waits for are not offered yet."
            " Use serial or chunked."
        )
    arrived = torch.empty(x.shape, dtype=x.dtype, device=weight.device)
    if isinstance(picked, Serial):
        arrived.copy_(x, non_blocking=True)
        return activated(product(arrived, weight, bias), activation), arrived
    out = arrived.new_empty((len(x), len(weight)))
    chunks = pieces(len(x), picked.chunks, sizes=picked.sizes, growing=True)
    with _Side(weight.device) as side:
        there = [side.copy(arrived[start:stop], x[start:stop]) for start, stop in chunks]
        for (start, stop), event in zip(chunks, there, strict=True):
            side.wait_for(event)
            part = out[start:stop]
            product_into(part, arrived[start:stop], weight, bias)
            part.copy_(activated(part, activation))
    return out, arrived


def _way(call: str, x: Tensor, weight: Tensor, way: str) -> Way:
    where = weight.device if x.device.type == "cpu" else x.device
    picked = chosen(
        call, m=len(x), n=len(weight), k=x.shape[1], dtype=x.dtype, device=where, world=1, way_text=way
    )
    if isinstance(picked, Chunked) and picked.order is Order.STAGGERED:
        raise InputError(f"{call} has no other ranks to stagger its chunks for. Leave out 'staggered'.")
    return picked


def _offload_tracked(
    host: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, /, *, activation: str, chunks: int
) -> None:
    tracked: Any = importlib.import_module("conccl.integrations.fused.tracked")
    tracked.require("gemm_offload", x.device)
    made = x.new_empty(host.shape)
    bounds = pieces(len(x), chunks)

    def transfer(chunk: int) -> None:
        start, stop = bounds[chunk]
        host[start:stop].copy_(made[start:stop], non_blocking=True)

    tracked.Released(
        name="gemm_offload",
        rank=0,
        x=x,
        weight=weight,
        bias=bias,
        activation=activation,
        out=made,
        spans=tuple(tracked.spans_in_order(bounds)),
        left_sms=0,
    ).run(transfer, wait=True)


class _Side:
    """A second stream for copies; where the device is a CPU, copies are made at once."""

    def __init__(self, device: torch.device, /) -> None:
        self._stream: Any = _Stream(device) if device.type == "cuda" else None

    def __enter__(self) -> _Side:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        return self

    def __exit__(self, *error: object) -> None:
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)

    def copy(self, to: Tensor, given: Tensor, /) -> Any:
        """Copy after what the current stream has done so far; what its completion is waited for by."""
        if self._stream is None:
            to.copy_(given)
            return None
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            to.copy_(given, non_blocking=True)
            for one in (to, given):
                if one.is_cuda:
                    one.record_stream(self._stream)
            return self._stream.record_event()

    def wait_for(self, event: Any, /) -> None:
        """Let the current stream wait for a copy."""
        if event is not None:
            event.wait()

    def wait_on_host(self) -> None:
        """Until all copies are complete."""
        if self._stream is not None:
            self._stream.synchronize()
