"""Which copy paths bypass the SMs, and how fast each is.

The occupancy test: a kernel holds every SM, bounded in time; a copy that ends meanwhile did without them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from conccl.core.units import MIB, format_bandwidth
from conccl.gpu.findings import Finding, State
from conccl.gpu.toolkit import launch

GROUP = "copies"
NBYTES = 256 * MIB
SMALL = 8 * MIB
HOLD_NS = 400_000_000
"""How long SMs are held at most."""
SETTLE_S = 0.05
CTA_SHARED = 110 * 1024
"""Two CTAs of this size and 1024 threads fill an SM of 228 KiB."""
REPEATS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A way of copying: what it is called, and how to put one copy into the current stream."""

    name: str
    copy: Callable[[int], None]


def probe() -> Iterator[Finding]:
    """Every path in turn."""
    torch.cuda.init()
    here, there = (torch.randint(0, 255, (NBYTES,), dtype=torch.uint8, device="cuda") for _ in range(2))
    pinned = [torch.empty(NBYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    paths = [
        Path(name="host to device", copy=lambda n: _copy(here[:n], pinned[0][:n])),
        Path(name="device to host", copy=lambda n: _copy(pinned[1][:n], there[:n])),
        Path(name="inside device memory", copy=lambda n: _copy(here[:n], there[:n])),
    ]
    if torch.cuda.device_count() > 1 and torch.cuda.can_device_access_peer(0, 1):
        other = torch.empty(NBYTES, dtype=torch.uint8, device="cuda:1")
        paths.append(Path(name="to a peer", copy=lambda n: _copy(other[:n], there[:n])))
    for path in paths:
        free = bypasses(path.copy)
        yield Finding(
            group=GROUP,
            name=path.name,
            state=State.OK if free else State.INFO,
            value=f"{'without SMs (copy engine)' if free else 'by SMs'}, {_bandwidth([path.copy])}",
            evidence="occupancy test: the copy "
            + ("ended while every SM was held" if free else "waited for the kernel that held every SM"),
            advice="" if free else "A copy engine strategy on this path takes SMs all the same.",
        )
    both = _bandwidth([paths[0].copy, paths[1].copy])
    yield Finding(
        group=GROUP,
        name="host, both ways at once",
        state=State.OK,
        value=both,
        evidence="two streams, events",
    )


def bypasses(copy: Callable[[int], None], /) -> bool:
    """Whether a copy ends while a kernel holds all SMs."""
    copy(SMALL)  # loads what must be loaded before anything is held
    torch.cuda.synchronize()
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    ctas = 2 * sms
    release, started = (torch.zeros(1, dtype=torch.int32, device="cuda") for _ in range(2))
    ids = torch.zeros(ctas, dtype=torch.int32, device="cuda")
    setter = torch.ones(1, dtype=torch.int32).pin_memory()
    holding, copying = torch.cuda.Stream(), torch.cuda.Stream()
    ended = torch.cuda.Event()
    torch.cuda.synchronize()
    pointers = (release.data_ptr(), HOLD_NS, ids.data_ptr(), started.data_ptr())
    launch(
        "conccl_hold",
        *pointers,
        grid=ctas,
        block=1024,
        stream=holding.cuda_stream,
        shared_nbytes=CTA_SHARED,
    )
    time.sleep(SETTLE_S)
    with torch.cuda.stream(copying):
        copy(SMALL)
        ended.record()
    time.sleep(SETTLE_S)
    free = ended.query() and not holding.query()
    with torch.cuda.stream(torch.cuda.Stream()):
        release.copy_(setter, non_blocking=True)  # a host copy: it needs no SM, and the bound ends it else
    torch.cuda.synchronize()
    return free


def _copy(into: torch.Tensor, out_of: torch.Tensor) -> None:
    into.copy_(out_of, non_blocking=True)


def _bandwidth(copies: list[Callable[[int], None]]) -> str:
    """Median over repeats of the bytes of all copies, one stream each, over their time."""
    streams = [torch.cuda.Stream() for _ in copies]
    rates = []
    for _ in range(REPEATS + 1):
        torch.cuda.synchronize()
        begin = torch.cuda.Event(enable_timing=True)
        begin.record()
        ends = []
        for stream, copy in zip(streams, copies, strict=True):
            stream.wait_event(begin)
            with torch.cuda.stream(stream):
                copy(NBYTES)
                ends.append(torch.cuda.Event(enable_timing=True))
                ends[-1].record()
        torch.cuda.synchronize()
        seconds = max(begin.elapsed_time(end) for end in ends) / 1e3
        rates.append(len(copies) * NBYTES / seconds)
    return format_bandwidth(sorted(rates[1:])[REPEATS // 2])
