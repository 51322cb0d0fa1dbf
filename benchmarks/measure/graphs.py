"""How long one call takes: the median of replays of a CUDA graph that holds many calls."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

import torch

GRAPH_US = 1200.0
"""A graph is made about this long, so that launching it (a few us) does not count."""
ROW_US = 9_000.0
"""Replays of one row take about this long in all."""
CALLS_AT_MOST = 200
REPLAYS = (3, 7)
"""Fewest and most."""

Call = Callable[[], object]


class Clock:
    """Times calls on one device, on a stream of its own."""

    def __init__(self, *, device: str) -> None:
        self.device = device
        if device == "cuda":
            self.stream = torch.cuda.Stream()
            self._memory = torch.cuda.graph_pool_handle()
            # While one graph of it lives, the memory pool keeps what later graphs allocated and gave back.
            self._anchor = self._capture([lambda: torch.zeros(1, device="cuda")], calls=1)

    def measure(self, make: Callable[[], Call], /, *, sets: int, floor_us: float) -> dict[str, object]:
        """Time the calls that ``make`` builds, one for each of ``sets`` sets of operands."""
        if self.device != "cuda":
            return _on_host([make() for _ in range(min(sets, 2))])
        with torch.cuda.stream(self.stream):
            calls = [make() for _ in range(min(sets, 2))]
            eager_us = self._eager_us(calls)
            count = _calls(eager_us if eager_us > 100 else floor_us)
            try:
                graph, calls, first_us = self._graph(make, calls, sets=sets, count=count)
                if first_us < GRAPH_US / 2 and count < CALLS_AT_MOST:
                    del graph  # the eager call was slow only on the host
                    count = _calls(first_us / count)
                    graph, calls, first_us = self._graph(make, calls, sets=sets, count=count)
            except RuntimeError:
                torch.cuda.synchronize()
                return _statistics(self._eager_samples(calls), sets=len(calls), calls=1, timed="eager")
            samples = self._replays(graph, first_us=first_us)
            del graph
        return _statistics([s / count for s in samples], sets=len(calls), calls=count, timed="graph")

    def graph(self, calls: list[Call], /, *, floor_us: float) -> tuple[torch.cuda.CUDAGraph, int, float]:
        """A graph of calls, how many it holds, and us of one; to be used on this clock's stream."""
        calls[0]()
        count = _calls(floor_us)
        graph, _, first_us = self._graph(lambda: calls[0], calls, sets=len(calls), count=count)
        return graph, count, first_us / count

    def _graph(
        self, make: Callable[[], Call], calls: list[Call], *, sets: int, count: int
    ) -> tuple[torch.cuda.CUDAGraph, list[Call], float]:
        """A graph of so many calls, on as many sets of operands as it can use, and its time in us."""
        calls = calls + [make() for _ in range(min(sets, count) - len(calls))]
        graph = self._capture(calls, calls=count)
        graph.replay()
        return graph, calls, self._between(graph.replay)

    def _eager_us(self, calls: Sequence[Call]) -> float:
        """GPU time of a second call; the first loads and chooses kernels."""
        calls[0]()
        torch.cuda.synchronize()
        return self._between(calls[-1])

    def _eager_samples(self, calls: Sequence[Call]) -> list[float]:
        return [self._between(calls[i % len(calls)]) for i in range(REPLAYS[1])]

    def _between(self, call: Call) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def _capture(self, each: Sequence[Call], *, calls: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # What a call returns lives until its set's next turn: each set writes to memory of its own.
        returned: deque[object] = deque(maxlen=len(each))
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self._memory)
            try:
                for i in range(calls):
                    returned.append(each[i % len(each)]())
            except BaseException:
                with contextlib.suppress(RuntimeError):  # the first error is the one to report
                    graph.capture_end()
                raise
            graph.capture_end()
        return graph

    def _replays(self, graph: torch.cuda.CUDAGraph, *, first_us: float) -> list[float]:
        fewest, most = REPLAYS
        count = round(min(max(ROW_US / first_us, fewest), most))
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            graph.replay()
            mark.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) * 1e3 for a, b in itertools.pairwise(marks)]


def _calls(each_us: float) -> int:
    return round(min(max(GRAPH_US / each_us, 2), CALLS_AT_MOST))


def _on_host(calls: Sequence[Call]) -> dict[str, object]:
    samples = []
    for call in calls:
        begin = time.perf_counter()
        call()
        samples.append((time.perf_counter() - begin) * 1e6)
    return _statistics(samples, sets=len(calls), calls=1, timed="host")


def _statistics(samples: Sequence[float], *, sets: int, calls: int, timed: str) -> dict[str, object]:
    return {
        "us": round(statistics.median(samples), 4),
        "us_min": round(min(samples), 4),
        "us_max": round(max(samples), 4),
        "sets": sets,
        "calls": calls,
        "replays": len(samples),
        "timed": timed,
    }
