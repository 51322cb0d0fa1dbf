"""What launching, ordering and running for long cost on this machine, as records of named figures."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from graphs import Call
from launches import Launches
from pool import Pool
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

LAUNCHES = 300
"""Fewer than a stream queues (1024), so that the host never waits for room."""
HOLD_CYCLES = 30_000_000
"""About 15 ms, in which the host fills the queue."""
SUSTAINED_SECONDS = 1.0
WINDOW = 20

Fact = dict[str, object]


def facts(pool: Pool, /) -> dict[str, Callable[[], Fact]]:
    """Name to what measures it."""
    return {
        "host cost of a call": lambda: _host_costs(pool),
        "gap between kernels": lambda: _gaps(pool),
        "order between streams": _ordering,
        "sustained gemm 8192": lambda: _sustained(_product(pool, 8192)),
        "sustained gemm 4096": lambda: _sustained(_product(pool, 4096)),
        "sustained add": lambda: _sustained(_add(pool)),
    }


def _product(pool: Pool, side: int) -> Call:
    a, b, out = pool.take(side, side), pool.take(side, side), pool.out(side, side)
    return lambda: torch.mm(a, b.t(), out=out)


def _add(pool: Pool) -> Call:
    x, y, out = pool.take(1 << 28), pool.take(1 << 28), pool.out(1 << 28)
    return lambda: torch.add(x, y, out=out)


def _host_costs(pool: Pool) -> Fact:
    """Host time (us) to enqueue one call while the GPU is busy; autograd: with a graph being recorded."""
    x, w, v = pool.take(256, 1024), pool.take(1024, 1024), pool.take(1024)
    q = pool.take(2, 128, 8, 64).transpose(1, 2)
    leaf, weight = x.clone().requires_grad_(), w.clone().requires_grad_()
    small, pinned = pool.out(4096, dtype=torch.uint8), pool.pinned(4096)
    event, other = torch.cuda.Event(), torch.cuda.Stream()
    event.record()
    graphs = {count: _graph(lambda: small.fill_(1), count) for count in (1, 10)}
    calls: dict[str, Call] = {
        "empty": lambda: torch.empty_like(x),
        "view": lambda: x.view(1024, 256),
        "add": lambda: x + x,
        "add_": lambda: small.add_(1),
        "fill_": lambda: small.fill_(1),
        "zero_ (memset)": small.zero_,
        "gelu": lambda: functional.gelu(x),
        "mm": lambda: torch.mm(x, w),
        "linear": lambda: functional.linear(x, w),
        "linear with bias": lambda: functional.linear(x, w, v),
        "layer_norm": lambda: functional.layer_norm(x, (1024,), v, v),
        "softmax": lambda: x.softmax(-1),
        "dropout": lambda: functional.dropout(x, 0.1),
        "cat": lambda: torch.cat((x, x)),
        "sum": x.sum,
        "sdpa": lambda: functional.scaled_dot_product_attention(q, q, q, is_causal=True),
        "add, autograd": lambda: leaf + leaf,
        "linear, autograd": lambda: functional.linear(leaf, weight),
        "gelu, autograd": lambda: functional.gelu(leaf),
        "copy host to device": lambda: small.copy_(pinned, non_blocking=True),
        "copy device to host": lambda: pinned.copy_(small, non_blocking=True),
        "event record": event.record,
        "wait for event": lambda: other.wait_event(event),
        **{f"graph of {count}": graph.replay for count, graph in graphs.items()},
    }
    result: Fact = {name: round(_enqueue_us(call), 3) for name, call in calls.items()}
    for name, step in (("mul", lambda t: t * 1.01), ("linear", lambda t: functional.linear(t, weight))):
        result[f"backward of {name}"] = round(_backward_us(leaf, step), 3)
    return result


def _enqueue_us(call: Call) -> float:
    samples = []
    for _ in range(4):
        torch.cuda.synchronize()
        torch.cuda._sleep(HOLD_CYCLES)
        begin = time.perf_counter()
        for _ in range(LAUNCHES):
            call()
        samples.append((time.perf_counter() - begin) / LAUNCHES * 1e6)
    torch.cuda.synchronize()
    return statistics.median(samples[1:])


def _backward_us(leaf: torch.Tensor, step: Callable[[torch.Tensor], torch.Tensor]) -> float:
    samples = []
    for _ in range(4):
        y = leaf
        for _ in range(100):
            y = step(y)
        gradient = torch.ones_like(y)
        torch.cuda.synchronize()
        torch.cuda._sleep(HOLD_CYCLES)
        begin = time.perf_counter()
        torch.autograd.grad(y, leaf, gradient)
        samples.append((time.perf_counter() - begin) / 100 * 1e6)
    torch.cuda.synchronize()
    return statistics.median(samples[1:])


def _graph(call: Call, count: int) -> torch.cuda.CUDAGraph:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        for _ in range(count):
            call()
        graph.capture_end()
    return graph


def _gaps(pool: Pool) -> Fact:
    """From kernel to kernel of one stream, in us: period by events, gap and duration by the profiler."""
    small = pool.out(4096, dtype=torch.uint8)
    a, b, out = pool.take(512, 512), pool.take(512, 512), pool.out(512, 512)
    result: Fact = {}
    for name, call in {"fill_": lambda: small.fill_(1), "mm 512": lambda: torch.mm(a, b, out=out)}.items():
        graph = _graph(call, LAUNCHES)

        def eager(call: Call = call) -> None:
            torch.cuda._sleep(HOLD_CYCLES)
            for _ in range(LAUNCHES):
                call()

        result[f"{name}: period in a graph"] = round(_period_us(graph.replay), 3)
        result[f"{name}: period eager, queued"] = round(_queued_period_us(call), 3)
        for how, run in (("graph", graph.replay), ("eager", eager)):
            gap, duration = _profiled_gap_us(run)
            result[f"{name}: gap in profile, {how}"] = gap
            result[f"{name}: duration in profile, {how}"] = duration
    return result


def _period_us(run: Call) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    run()
    begin.record()
    for _ in range(5):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / 5 / LAUNCHES


def _queued_period_us(call: Call, *, extra: Call | None = None) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(HOLD_CYCLES)
    begin.record()
    for _ in range(LAUNCHES):
        call()
        if extra is not None:
            extra()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / LAUNCHES


def _profiled_gap_us(run: Call) -> tuple[float, float]:
    raw = Path(tempfile.mkdtemp()) / "raw.json"
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
        run()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(raw))
    ran = Launches(raw).spans_us()[-LAUNCHES:]
    gaps = [later[0] - earlier[1] for earlier, later in itertools.pairwise(ran)]
    return round(statistics.median(gaps), 3), round(statistics.median(e - b for b, e in ran), 3)


def _ordering() -> Fact:
    """Us that events and changes of stream add to a chain of small kernels."""
    small = torch.empty(16, device="cuda")
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    events = [torch.cuda.Event() for _ in range(2 * LAUNCHES)]
    timed = torch.cuda.Event(enable_timing=True)
    turns = itertools.cycle(events)

    def to_and_fro() -> None:
        for here, there in ((one, two), (two, one)):
            with torch.cuda.stream(here):
                small.fill_(1)
                event = next(turns)
                event.record()
            there.wait_event(event)

    with torch.cuda.stream(one):
        plain = _queued_period_us(lambda: small.fill_(1))
        recorded = _queued_period_us(lambda: small.fill_(1), extra=timed.record)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(HOLD_CYCLES)
        begin.record()
        for _ in range(100):
            to_and_fro()
        end.record()
        end.synchronize()
    hop = begin.elapsed_time(end) * 1e3 / 200
    return {
        "period": round(plain, 3),
        "period with a timed event each": round(recorded, 3),
        "period where each waits for the other stream": round(hop, 3),
    }


def _sustained(call: Call) -> Fact:
    """Ms of a call over successive windows of a long run: what the power limit leaves."""
    call()
    torch.cuda.synchronize()
    windows, clocks, end_at = [], [], time.perf_counter() + SUSTAINED_SECONDS
    marks = [torch.cuda.Event(enable_timing=True)]
    marks[0].record()
    while time.perf_counter() < end_at:
        for _ in range(WINDOW):
            call()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        marks[-2].synchronize()  # one window ahead of the GPU, no more
        clocks.append(clock_and_power())
    torch.cuda.synchronize()
    windows = [round(a.elapsed_time(b) / WINDOW, 5) for a, b in itertools.pairwise(marks)]
    return {"ms": windows, "sm_clock_mhz_and_watts": clocks}


def clock_and_power() -> tuple[int, float] | None:
    """SM clock in MHz and power in W as the driver says; None where it cannot be asked."""
    try:
        import pynvml  # noqa: PLC0415 - reading the clock is a bonus

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        clock = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        return clock, pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3
    except Exception:
        return None
