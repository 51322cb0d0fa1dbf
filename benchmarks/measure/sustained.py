"""Rows run for long enough that the power limit sets the clock, as in the midst of training a large model.

Rows elsewhere are timed in bursts of a few ms with idle time between, in which the clock stays high.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time

import torch
from facts import clock_and_power
from gemm_rows import gemm, gemm_rows
from graphs import Call, Clock
from layer_rows import layer_rows
from pool import Pool
from rows import Row, RowFile, leave_if_broken
from torch.nn import functional

HELD_MS = 150.0
"""How long each row runs without a pause; the clock settles within 100 ms."""
ROWS = {"large": 110, "small": 50, "attention": 16}
LARGE_FLOPS = 4e10
WAYS_SHAPES = (
    *[(512, 2304, 768), (16, 2304, 768), (512, 768, 768), (128, 3072, 768), (1024, 12288, 1536)],
    *[(512, 4096, 4096), (1024, 4096, 4096), (4096, 4096, 4096), (16, 12288, 1536), (1, 4096, 4096)],
)


def measure_sustained(*, file: RowFile, pool: Pool, seconds: float) -> None:
    """First the same products by several calls of PyTorch, in bursts; then rows held for long."""
    end = time.monotonic() + seconds
    clock = Clock(device="cuda")
    for shape in WAYS_SHAPES:
        for way in ("mm out", "mm", "linear", "linear with bias"):
            _keep(file, f"way {way} {shape}", lambda way=way, shape=shape: _way(clock, pool, way, *shape))
    rows = _rows()
    _hold(clock, gemm(8192, 8192, 8192, family="warm"), pool)
    for row in rows:
        if time.monotonic() > end:
            print("no time for all rows", flush=True)
            return
        _keep(file, f"sustained {row.id}", lambda row=row: {"key": row.key, **_hold(clock, row, pool)})


def _rows() -> list[Row]:
    draw = random.Random(17)
    gemms = [r for r in gemm_rows() if r.key["dtype"] in ("bf16", "fp8_e4m3")]
    large = [r for r in gemms if r.flops >= LARGE_FLOPS and r.floor_us < 5000]
    small = [r for r in gemms if r.flops < LARGE_FLOPS]
    attention = [r for r in layer_rows() if r.key["op"] == "sdpa" and r.key["dtype"] == "bf16"]
    chosen = [draw.sample(g, n) for g, n in zip((large, small, attention), ROWS.values(), strict=True)]
    rows = [row for group in chosen for row in group]
    draw.shuffle(rows)
    return rows


def _keep(file: RowFile, id_: str, make) -> None:
    if id_ in file.done:
        return
    file.begin(id_)
    try:
        file.append({"id": id_, **make()})
    except Exception as error:
        file.append({"id": id_, "error": f"{type(error).__name__}: {error}"[:300]})
        leave_if_broken("cuda")


def _hold(clock: Clock, row: Row, pool: Pool) -> dict[str, object]:
    """Replay a graph of the row for `HELD_MS`; us of a call at the start and in the last half."""
    with torch.cuda.stream(clock.stream):
        calls = [row.make(pool) for _ in range(min(row.sets, 16))]
        graph, count, each_us = clock.graph(calls, floor_us=row.floor_us)
        marks = [torch.cuda.Event(enable_timing=True)]
        marks[0].record()
        replays = max(6, round(HELD_MS * 1e3 / each_us / count))
        for _ in range(replays):
            graph.replay()
            marks.append(torch.cuda.Event(enable_timing=True))
            marks[-1].record()
        marks[int(0.8 * replays)].synchronize()
        reading = clock_and_power()
        torch.cuda.synchronize()
    samples = [a.elapsed_time(b) * 1e3 / count for a, b in itertools.pairwise(marks)]
    return {
        "section": "sustained",
        "us_first": round(statistics.median(samples[: max(1, replays // 30)]), 4),
        "us": round(statistics.median(samples[replays // 2 :]), 4),
        "held_ms": round(sum(samples) * count / 1e3, 1),
        "sm_clock_mhz_and_watts": reading,
    }


def _way(clock: Clock, pool: Pool, way: str, m: int, n: int, k: int) -> dict[str, object]:
    def make() -> Call:
        a, b, out, bias = pool.take(m, k), pool.take(n, k), pool.out(m, n), pool.take(n)
        return {
            "mm out": lambda: torch.mm(a, b.t(), out=out),
            "mm": lambda: torch.mm(a, b.t()),
            "linear": lambda: functional.linear(a, b),
            "linear with bias": lambda: functional.linear(a, b, bias),
        }[way]

    row = gemm(m, n, k, family="way")
    timed = clock.measure(make, sets=row.sets, floor_us=row.floor_us)
    return {"section": "way", "way": way, "m": m, "n": n, "k": k, **timed}
