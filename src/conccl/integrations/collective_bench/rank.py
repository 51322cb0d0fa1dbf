"""What one rank does: every size in turn, timed and checked, told to whoever started it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from conccl.bench.collectives import IN_PLACE_ONLY, OUT_OF_PLACE_ONLY, elements
from conccl.core.kinds import CollectiveKind as Kind
from conccl.integrations.collective_bench.asked import BenchRequest
from conccl.integrations.collective_bench.calls import Bound, bind, old_names
from conccl.integrations.collective_bench.data import RandomData, dtype_of
from conccl.integrations.register import register_backend

Tell = Callable[[Any], None]
_SIGN_OF_LIFE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a rank measured of one size and way."""

    times_ns: tuple[int, ...]
    nwrong: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What a rank measured of one size."""

    count: int
    out_of_place: Sample | None
    in_place: Sample | None
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A rank that is ready."""

    pid: int
    device: str
    torch: str


def measure_as(rank: int, request: BenchRequest, store: str, tell: Tell, /) -> None:
    """Join the group by a file and measure all sizes; ``tell`` gets a `Hello`, then `Samples` of each."""
    if request.device == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    register_backend()
    dist.init_process_group(
        request.backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=request.ranks,
        timeout=timedelta(seconds=request.timeout_s),
    )
    name = torch.cuda.get_device_name(rank) if request.device == "cuda" else "cpu"
    tell(Hello(pid=os.getpid(), device=name, torch=torch.__version__))
    with old_names():
        for nbytes in request.sizes:
            tell(_Rank(rank, request, tell).size(nbytes))
        dist.barrier()
    dist.destroy_process_group()


class _Rank:
    """One rank's measurements."""

    def __init__(self, rank: int, request: BenchRequest, tell: Tell, /) -> None:
        self._rank = rank
        self._request = request
        self._tell = tell
        self._told = time.monotonic()
        self._dtype = dtype_of(request.dtype)

    def size(self, nbytes: int) -> Samples:
        kind, request = self._request.kind, self._request
        each = self._dtype.itemsize
        count = elements(kind, nbytes, ranks=request.ranks, element_nbytes=each)
        out = None if kind in IN_PLACE_ONLY else self._measure(count, in_place=False)
        inside = None if kind in OUT_OF_PLACE_ONLY else self._measure(count, in_place=True)
        return Samples(count=count, out_of_place=out, in_place=inside, how=self._how(count * each))

    def _measure(self, count: int, *, in_place: bool) -> Sample:
        request = self._request
        bound = bind(
            request.kind,
            count,
            rank=self._rank,
            ranks=request.ranks,
            root=request.root,
            dtype=self._dtype,
            redop=request.redop,
            device=torch.device(request.device),
            in_place=in_place,
        )
        data = RandomData(
            seed=count * 2 + in_place, dtype=self._dtype, redop=request.redop, ranks=request.ranks
        )
        bound.fill(data)
        for _ in range(request.warmup):
            self._once(bound)
        times = tuple(self._once(bound) for _ in range(request.iterations))
        if not request.check:
            return Sample(times_ns=times, nwrong=None)
        bound.fill(data)  # anew: reductions in place have changed their inputs with every iteration
        dist.barrier()
        self._once(bound)
        return Sample(times_ns=times, nwrong=bound.wrong(data))

    def _once(self, bound: Bound) -> int:
        """One call after a barrier; nanoseconds."""
        self._give_sign_of_life()
        dist.barrier()
        self._wait_for_device()
        began = time.perf_counter_ns()
        bound.run()
        self._wait_for_device()
        return time.perf_counter_ns() - began

    def _wait_for_device(self) -> None:
        if self._request.device == "cuda":
            torch.cuda.synchronize()

    def _give_sign_of_life(self) -> None:
        now = time.monotonic()
        if now - self._told > _SIGN_OF_LIFE_S:
            self._told = now
            self._tell(None)

    def _how(self, nbytes: int) -> str:
        """What the backend says about a call of so many bytes a block."""
        if self._request.backend != "conccl" or self._request.kind in (Kind.GATHER, Kind.SCATTER):
            return ""
        whole = self._request.kind in IN_PLACE_ONLY
        group: Any = dist.group.WORLD
        return str(
            group.explain(
                str(self._request.kind),
                nbytes if whole else nbytes * self._request.ranks,
                dtype=self._dtype,
            )
        )
