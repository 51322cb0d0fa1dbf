"""A call of a fused operator as a pair, and each way to run it as a strategy that the simulator knows."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.kinds import CollectiveKind, DType, Memory
from conccl.core.ops import Collective, Communication, Copy, Gemm
from conccl.core.pair import Dependence, Pair
from conccl.core.plan import Engine
from conccl.strategies import choices
from conccl.strategies.choices import (
    COPY_ENGINES,
    SERIAL,
    Fused,
    Prioritized,
    PrioritizedPartitioned,
    Strategy,
)
from conccl.strategies.ways import Chunked, Order, Serial, Tracked, Way


class Call(enum.StrEnum):
    """The fused operators."""

    GEMM_REDUCE_SCATTER = "gemm_reduce_scatter"
    GEMM_ALL_REDUCE = "gemm_all_reduce"
    GEMM_ALL_TO_ALL = "gemm_all_to_all"
    ALL_GATHER_GEMM = "all_gather_gemm"
    GEMM_OFFLOAD = "gemm_offload"
    PREFETCH_GEMM = "prefetch_gemm"


_FED = {
    Call.GEMM_REDUCE_SCATTER: CollectiveKind.REDUCE_SCATTER,
    Call.GEMM_ALL_REDUCE: CollectiveKind.ALL_REDUCE,
    Call.GEMM_ALL_TO_ALL: CollectiveKind.ALL_TO_ALL,
}

_HOST_LINK = frozenset({Call.GEMM_OFFLOAD, Call.PREFETCH_GEMM})


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One call: x[m, k] x weight[n, k]^T on each of ``world`` ranks, and what moves before or after."""

    call: Call
    m: int
    """Of all rows that are multiplied: of all_gather_gemm, those of all ranks together."""
    n: int
    k: int
    world: int = 1
    dtype: DType = DType.BF16
    mover: Engine = Engine.SM
    """What the group moves bytes by: NCCL's kernels, or copy engines. The host link always has engines."""

    @property
    def is_local(self) -> bool:
        """Whether nothing is moved: a collective of one rank."""
        return self.world == 1 and self.call not in _HOST_LINK

    @property
    def by_engines(self) -> bool:
        """Whether copy engines move the bytes."""
        return self.mover is Engine.COPY_ENGINE or self.call in _HOST_LINK

    def pair(self) -> Pair:
        """The GEMM and the transfer, one of which feeds the other; blocks of rows as long as the longest."""
        rows = -(-self.m // self.world) * self.world
        gemm = Gemm(m=rows, n=self.n, k=self.k, dtype=self.dtype)
        feeds = self.call not in (Call.ALL_GATHER_GEMM, Call.PREFETCH_GEMM)
        nbytes = rows * (self.n if feeds else self.k) * self.dtype.nbytes
        dependence = (
            Dependence.COMPUTE_FEEDS_COMMUNICATION if feeds else Dependence.COMMUNICATION_FEEDS_COMPUTE
        )
        return Pair(compute=gemm, communication=self._moved(nbytes), dependence=dependence)

    def _moved(self, nbytes: int) -> Communication:
        if self.call is Call.GEMM_OFFLOAD:
            return Copy(nbytes=nbytes, destination=Memory.HOST)
        if self.call is Call.PREFETCH_GEMM:
            return Copy(nbytes=nbytes, source=Memory.HOST)
        kind = _FED.get(self.call, CollectiveKind.ALL_GATHER)
        return Collective(kind=kind, nbytes=nbytes, ranks=self.world, dtype=self.dtype)

    def strategy(self, way: Way, /) -> Strategy:
        """The way as the simulator knows it."""
        by_engines = self.by_engines
        match way:
            case Serial():
                return COPY_ENGINES if self.call in _HOST_LINK else SERIAL
            case Chunked(order=Order.TOGETHER):
                moved = COPY_ENGINES if by_engines else Strategy(sharing=Prioritized())
                cut = choices.Chunked(count=way.chunks, sizes=way.sizes)
                return dataclasses.replace(moved, granularity=cut)
            case Tracked():
                # a persistent GEMM gives no SM back before it ends, so what moves needs its own
                moved = COPY_ENGINES if by_engines else Strategy(sharing=PrioritizedPartitioned())
                return dataclasses.replace(moved, granularity=Fused(parts=max(2, way.chunks)))
            case _:
                raise InputError(
                    f"{way} is not simulated; serial, chunked and tracked chunks of all ranks are."
                )
