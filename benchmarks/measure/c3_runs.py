"""Computation beside a transfer on one GPU: both sides alone and together, by launch order and priority."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from c3_kernels import copy, occupy
from gemm_rows import gemm
from graphs import Call
from pool import Pool
from rows import RowFile, leave_if_broken
from torch import Tensor
from torch.nn import functional

SLEEP_US = 150.0
"""Both streams sleep so long, from the same moment on, while the host puts the work into them."""
OFFSET_US = 15.0
"""The side that is launched second sleeps so much longer."""
REPEATS = 7
KNEE_CTAS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 132)
HOST_CTAS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
ENGINE_BANDWIDTH = {"in": 55e9, "out": 55e9, "both": 87e9}
"""Bytes/s expected of the copy engines; only chooses how much is copied."""

UNEQUAL = (0.4, 2.5)
"""Lengths of a transfer over that of the computation, in further pairs."""

GEMMS = (
    *[(8192, 8192, 8192, 1), (2048, 28672, 4096, 1), (4096, 4096, 4096, 5)],
    *[(512, 4096, 4096, 24), (16, 28672, 4096, 13), (128, 8192, 8192, 20)],
)
"""m, n, k and how many in a row, so that a side lasts about 0.7 ms: four compute-bound, two memory-bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a pair: what it is, and how to put it into the current stream."""

    key: dict[str, object]
    enqueue: Callable[[], None] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """GPU times of one run in us; None where a side did not run."""

    whole: float
    compute: float | None
    communication: float | None


class Bench:
    """Runs sides alone and in pairs."""

    def __init__(self, *, file: RowFile, pool: Pool) -> None:
        self.file = file
        self.pool = pool
        self.main = torch.cuda.Stream()
        self.sides = {"normal": torch.cuda.Stream(), "high": torch.cuda.Stream(priority=-1)}
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(2):
            begin.record()
            torch.cuda._sleep(10_000_000)
            end.record()
            end.synchronize()
        self.cycles_per_us = 10_000_000 / (begin.elapsed_time(end) * 1e3)

    def samples(
        self,
        compute: Side | None,
        communication: Side | None,
        *,
        order: str = "after",
        priority: str = "normal",
    ) -> list[Sample]:
        """Warm up once, then run several times."""
        return [self._run(compute, communication, order, priority) for _ in range(REPEATS + 1)][1:]

    def _run(self, compute: Side | None, communication: Side | None, order: str, priority: str) -> Sample:
        streams = {"compute": self.main, "communication": self.sides[priority]}
        work = {"compute": compute, "communication": communication}
        late = {"after": "communication", "before": "compute"}[order]
        both = compute is not None and communication is not None
        torch.cuda.synchronize()
        ready = torch.cuda.Event()
        with torch.cuda.stream(self.main):
            self._sleep(SLEEP_US)
            ready.record()
        for name, stream in streams.items():
            stream.wait_event(ready)
            with torch.cuda.stream(stream):
                self._sleep(SLEEP_US + (OFFSET_US if both and name == late else 0))
        marks = {}
        for name, side in work.items():
            if side is not None:
                with torch.cuda.stream(streams[name]):
                    marks[name] = tuple(torch.cuda.Event(enable_timing=True) for _ in range(2))
                    marks[name][0].record()
                    side.enqueue()
                    marks[name][1].record()
        torch.cuda.synchronize()
        begins, ends = zip(*marks.values(), strict=True)
        first = begins[0] if len(begins) == 1 or begins[0].elapsed_time(begins[1]) > 0 else begins[1]
        whole = max(first.elapsed_time(end) for end in ends) * 1e3
        each = {name: begin.elapsed_time(end) * 1e3 for name, (begin, end) in marks.items()}
        return Sample(whole=whole, compute=each.get("compute"), communication=each.get("communication"))

    def _sleep(self, us: float, /) -> None:
        torch.cuda._sleep(int(us * self.cycles_per_us))

    def alone_us(self, side: Side, /) -> float:
        """Median time of one side by itself."""
        return statistics.median(s.whole for s in self.samples(side, None))

    def keep(self, id_: str, make: Callable[[], dict[str, object]], /) -> None:
        """Measure one record unless it is there; an error becomes part of the record."""
        if id_ in self.file.done:
            return
        self.file.begin(id_)
        try:
            self.file.append({"id": id_, **make()})
        except Exception as error:
            self.file.append({"id": id_, "error": f"{type(error).__name__}: {error}"[:300]})
            leave_if_broken("cuda")


def measure_pairs(bench: Bench, /, *, past: Callable[[], bool]) -> None:
    """The bandwidth of copies by number of CTAs, then every compute side beside every kind of transfer."""
    memory, host = knees(bench)
    print("GB/s by CTAs, HBM:", {k: round(v / 1e9) for k, v in memory.items()}, flush=True)
    print("GB/s by CTAs, host:", {k: round(v / 1e9, 1) for k, v in host.items()}, flush=True)
    tile_us = _tile_us(bench)
    sides = [*(_gemm_side(bench.pool, *g) for g in GEMMS), *_other_sides(bench.pool)]
    for compute in sides:
        if past():
            print(f"no time for {compute.key} and those after it", flush=True)
            return
        alone = bench.alone_us(compute)
        for n in (4, 8, 16, 32, 64):
            _occupied(bench, compute, alone=alone, ctas=n, tile_us=tile_us)
        for communication in _transfers(bench.pool, alone, memory=memory, host=host):
            engine = communication.key["kind"] == "copy_engine"
            for order in ("after", "before"):
                for priority in ("normal",) if engine else ("normal", "high"):
                    _pair(bench, compute, communication, order=order, priority=priority)


def measure_more_pairs(bench: Bench, /, *, past: Callable[[], bool]) -> None:
    """Copies by very few CTAs, and sides of unequal length."""
    memory, host = knees(bench)
    tile_us = _tile_us(bench)
    sides = [*(_gemm_side(bench.pool, *g) for g in GEMMS), *_other_sides(bench.pool)]
    for i, compute in enumerate(sides):
        alone = bench.alone_us(compute)
        few = [hbm_copy(bench.pool, ctas=4, nbytes=_whole(memory[4] * alone / 1e6))]
        few += [
            host_copy(bench.pool, ctas=n, nbytes=_whole(host[way, n] * alone / 1e6), direction=way)
            for way in ("in", "out")
            for n in (1, 2, 4)
        ]
        for n in (1, 2, 96, 120):
            _occupied(bench, compute, alone=alone, ctas=n, tile_us=tile_us)
        unequal = [
            side
            for ratio in UNEQUAL
            for side in _transfers(bench.pool, ratio * alone, memory=memory, host=host)
            if side.key.get("ctas") in (None, 8, 16) and i % 2 == 0
        ]
        for communication in (*few, *unequal):
            if past():
                print(f"no time for {communication.key} beside {compute.key} and those after it", flush=True)
                return
            for order in ("after", "before"):
                _pair(bench, compute, communication, order=order, priority="normal")


def _pair(bench: Bench, compute: Side, communication: Side, *, order: str, priority: str) -> None:
    def make() -> dict[str, object]:
        alone = bench.samples(compute, None)
        other = bench.samples(None, communication)
        together = bench.samples(compute, communication, order=order, priority=priority)
        return {
            "section": "pair",
            "compute": compute.key,
            "communication": communication.key,
            "order": order,
            "priority": priority,
            "offset_us": OFFSET_US,
            "compute_alone_us": _median(s.whole for s in alone),
            "communication_alone_us": _median(s.whole for s in other),
            "concurrent_us": _median(s.whole for s in together),
            "concurrent_us_min": round(min(s.whole for s in together), 2),
            "concurrent_us_max": round(max(s.whole for s in together), 2),
            "compute_us": _median(s.compute for s in together),
            "communication_us": _median(s.communication for s in together),
        }

    bench.keep(f"pair {compute.key} {communication.key} {order} {priority}", make)


def _occupied(bench: Bench, compute: Side, *, alone: float, ctas: int, tile_us: float) -> None:
    def make() -> dict[str, object]:
        tiles = int((4 * alone + 200) / tile_us)
        words = bench.pool.out(1 << 16, dtype=torch.uint8)
        occupant = Side(key={}, enqueue=lambda: occupy(words, ctas=ctas, tiles=tiles))
        samples = bench.samples(compute, occupant, order="before")
        covered = all(s.communication is not None and s.communication > (s.compute or 0) for s in samples)
        return {
            "section": "occupied",
            "compute": compute.key,
            "sms_taken": ctas,
            "compute_alone_us": round(alone, 2),
            "compute_us": _median(s.compute for s in samples),
            "occupant_outlasted_compute": covered,
        }

    bench.keep(f"occupied {compute.key} {ctas}", make)


def knees(bench: Bench, /) -> tuple[dict[int, float], dict[tuple[str, int], float]]:
    """Bytes/s copied alone by number of CTAs: inside HBM (each byte read and written), over the link."""
    memory, host = {}, {}
    for ctas in KNEE_CTAS:
        nbytes = min(ctas * (16 << 20), 1 << 29)
        us = bench.alone_us(hbm_copy(bench.pool, ctas=ctas, nbytes=nbytes))
        memory[ctas] = nbytes / us * 1e6
        record = {
            "section": "bandwidth",
            "kind": "hbm_copy",
            "ctas": ctas,
            "nbytes": nbytes,
            "us": round(us, 2),
        }
        bench.keep(f"bandwidth hbm {ctas}", lambda record=record: record)
    for direction in ("in", "out"):
        for ctas in HOST_CTAS:
            nbytes = min(ctas * (4 << 20), 1 << 25)
            us = bench.alone_us(host_copy(bench.pool, ctas=ctas, nbytes=nbytes, direction=direction))
            host[direction, ctas] = nbytes / us * 1e6
            record = {"section": "bandwidth", "kind": "host_copy_sm", "direction": direction, "ctas": ctas}
            record |= {"nbytes": nbytes, "us": round(us, 2)}
            bench.keep(f"bandwidth host {direction} {ctas}", lambda record=record: record)
    return memory, host


def _tile_us(bench: Bench) -> float:
    """Time that one step of the occupying kernel takes."""
    words, tiles = bench.pool.out(1 << 16, dtype=torch.uint8), 20000
    return bench.alone_us(Side(key={}, enqueue=lambda: occupy(words, ctas=8, tiles=tiles))) / tiles


def _transfers(
    pool: Pool, us: float, *, memory: dict[int, float], host: dict[tuple[str, int], float]
) -> list[Side]:
    """Transfers of every kind that last about ``us`` alone."""
    sides = [hbm_copy(pool, ctas=n, nbytes=_whole(memory[n] * us / 1e6)) for n in (8, 16, 32, 64)]
    sides += [
        engine_copy(pool, nbytes=_whole(ENGINE_BANDWIDTH[way] * us / 1e6), direction=way)
        for way in ("in", "out", "both")
    ]
    for direction in ("in", "out"):
        for n in (8, 16, 32):
            nbytes = _whole(host[direction, n] * us / 1e6)
            sides.append(host_copy(pool, ctas=n, nbytes=nbytes, direction=direction))
    return sides


def _whole(nbytes: float, /) -> int:
    return max(1, int(nbytes) >> 16) << 16


def hbm_copy(pool: Pool, *, ctas: int, nbytes: int) -> Side:
    """A copy inside the GPU's memory by a kernel of so many CTAs, each on an SM of its own."""
    source, destination = pool.take(nbytes // 2), pool.out(nbytes // 2)
    key = {"kind": "hbm_copy", "ctas": ctas, "nbytes": nbytes}
    return Side(key=key, enqueue=lambda: copy(destination, source, ctas=ctas))


def host_copy(pool: Pool, *, ctas: int, nbytes: int, direction: str) -> Side:
    """A copy from or to pinned host memory by a kernel of so many CTAs."""
    here, there = pool.out(nbytes, dtype=torch.uint8), pool.pinned(nbytes)
    into, out_of = (here, there) if direction == "in" else (there, here)
    key = {"kind": "host_copy_sm", "direction": direction, "ctas": ctas, "nbytes": nbytes}
    return Side(key=key, enqueue=lambda: copy(into, out_of, ctas=ctas))


def engine_copy(pool: Pool, *, nbytes: int, direction: str) -> Side:
    """A copy from or to pinned host memory, or half each way at once, by the copy engines."""
    if direction == "both":
        half = _whole(nbytes / 2)
        ways = [engine_copy(pool, nbytes=half, direction=d) for d in ("in", "out")]
        other = torch.cuda.Stream()

        def both() -> None:
            current = torch.cuda.current_stream()
            other.wait_stream(current)
            with torch.cuda.stream(other):
                ways[1].enqueue()
            ways[0].enqueue()
            current.wait_stream(other)

        return Side(key={"kind": "copy_engine", "direction": "both", "nbytes": 2 * half}, enqueue=both)
    here, there = pool.out(nbytes, dtype=torch.uint8), pool.pinned(nbytes)
    into, out_of = (here, there) if direction == "in" else (there, here)
    key = {"kind": "copy_engine", "direction": direction, "nbytes": nbytes}

    def one() -> None:
        into.copy_(out_of, non_blocking=True)

    return Side(key=key, enqueue=one)


def _gemm_side(pool: Pool, m: int, n: int, k: int, count: int) -> Side:
    row = gemm(m, n, k, family="c3")
    calls = [row.make(pool) for _ in range(min(count, row.sets))]
    key = {"op": "gemm", "m": m, "n": n, "k": k, "dtype": "bf16", "count": count}
    return Side(key=key, enqueue=_graph_of(calls, count))


def _other_sides(pool: Pool) -> list[Side]:
    numel, rows, cols = 1 << 26, 16384, 8192
    xs, ys = ([pool.take(numel) for _ in range(2)] for _ in range(2))
    wide: list[Tensor] = [pool.take(rows, cols) for _ in range(2)]
    weight = pool.take(cols)
    outs = [pool.out(numel) for _ in range(2)]
    adds: list[Call] = [lambda i=i: torch.add(xs[i], ys[i], out=outs[i]) for i in range(2)]
    norms: list[Call] = [lambda i=i: functional.rms_norm(wide[i], (cols,), weight) for i in range(2)]
    return [
        Side(key={"op": "add", "numel": numel, "dtype": "bf16", "count": 8}, enqueue=_graph_of(adds, 8)),
        Side(
            key={"op": "rms_norm", "rows": rows, "cols": cols, "dtype": "bf16", "count": 4},
            enqueue=_graph_of(norms, 4),
        ),
    ]


def _graph_of(calls: Sequence[Call], count: int) -> Callable[[], None]:
    """One graph launch for many calls, so that the host never holds the GPU up."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        calls[0]()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        for i in range(count):
            calls[i % len(calls)]()
        graph.capture_end()
    return graph.replay


def _median(values: object, /) -> float:
    return round(statistics.median(values), 2)  # type: ignore[call-overload]
