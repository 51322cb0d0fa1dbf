"""Stream memory operations: a stream that waits for a word in memory, and one that writes it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from conccl.gpu.findings import Finding, State
from conccl.gpu.toolkit import checked, driver

GROUP = "memory_ops"
PATIENCE_S = 2.0
TRIPS = 50


def probe() -> Iterator[Finding]:
    """Wait and write on device memory and on pinned host memory."""
    torch.cuda.init()
    for name, word in (
        ("device memory", torch.zeros(1, dtype=torch.int32, device="cuda")),
        ("host memory", torch.zeros(1, dtype=torch.int32).pin_memory()),
    ):
        torch.cuda.synchronize()
        trip_us = _trip_us(word)
        works = trip_us is not None
        yield Finding(
            group=GROUP,
            name=f"stream write and wait, {name}",
            state=State.OK if works else State.WARNING,
            value=f"{trip_us:.1f} us from write to wait" if works else "the wait did not end",
            evidence=f"{TRIPS} times cuStreamWriteValue32 and cuStreamWaitValue32 on two streams",
            advice="" if works else "Flags cannot release copies here: use events between streams.",
        )


def _trip_us(word: torch.Tensor) -> float | None:
    """Average time of a write on one stream and the wait for it on another; None where it hangs."""
    cuda = driver()
    writing, waiting = torch.cuda.Stream(), torch.cuda.Stream()
    equal = cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(writing)
    waiting.wait_event(begin)
    for value in range(1, TRIPS + 1):
        checked(cuda.cuStreamWriteValue32(writing.cuda_stream, word.data_ptr(), value, 0))
        checked(cuda.cuStreamWaitValue32(waiting.cuda_stream, word.data_ptr(), value, equal))
    end.record(waiting)
    until = time.monotonic() + PATIENCE_S
    while not end.query():
        if time.monotonic() > until:
            return None
        time.sleep(0.001)
    return float(begin.elapsed_time(end)) * 1e3 / TRIPS
