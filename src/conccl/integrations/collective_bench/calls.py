"""The collectives that are measured: their buffers, their calls, and which elements must come out."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from conccl.bench.collectives import IN_PLACE_ONLY
from conccl.core.kinds import CollectiveKind as Kind
from conccl.integrations.collective_bench.data import RandomData

REDOPS: dict[str, Any] = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "avg": dist.ReduceOp.AVG,
}
"""Reductions by nccl-tests' names."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A collective bound to buffers of one rank."""

    kind: Kind
    rank: int
    ranks: int
    root: int
    given: torch.Tensor
    """Flat; every block of this rank's input."""
    got: torch.Tensor
    """Flat; every block of its output. In place it is, or holds, or lies in, what is given."""
    run: Callable[[], object]

    def fill(self, data: RandomData, /) -> None:
        """Other elements into the output, then this rank's into the input."""
        data.fill(self.rank, self.got, stream=1)
        data.fill(self.rank, self.given)

    def wrong(self, data: RandomData, /) -> int:
        """Elements of the output that are not what they must be."""
        return sum(data.wrong(part, rank=rank, start=start) for part, rank, start in self._wanted())

    def _wanted(self) -> Iterator[tuple[torch.Tensor, int | None, int]]:
        """Parts of the output; whose input (None: the reduction) they hold, and from which element on."""
        count = self.got.numel() // self.ranks
        match self.kind:
            case Kind.REDUCE | Kind.GATHER if self.rank != self.root:
                return
            case Kind.ALL_REDUCE | Kind.REDUCE:
                yield self.got, None, 0
            case Kind.BROADCAST:
                yield self.got, self.root, 0
            case Kind.REDUCE_SCATTER:
                yield self.got, None, self.rank * self.got.numel()
            case Kind.SCATTER:
                yield self.got, self.root, self.rank * self.got.numel()
            case _:
                start = self.rank * count if self.kind is Kind.ALL_TO_ALL else 0
                for peer, one in enumerate(self.got.view(self.ranks, count)):
                    yield one, peer, start


def bind(
    kind: Kind,
    count: int,
    /,
    *,
    rank: int,
    ranks: int,
    root: int,
    dtype: Any,
    redop: str,
    device: Any,
    in_place: bool,
) -> Bound:
    """Buffers of ``count`` elements (a block, or the whole message) and the call on them."""
    whole = torch.empty(count * ranks, dtype=dtype, device=device)
    block = whole[rank * count : (rank + 1) * count] if in_place else _block(count, whole)
    op = REDOPS[redop] if redop else None
    if kind in IN_PLACE_ONLY:
        whole = block
    inward = kind in (Kind.ALL_GATHER, Kind.GATHER)
    given, got = (block, whole) if inward else (whole, block)
    if kind is Kind.ALL_TO_ALL:
        got = torch.empty_like(whole)
    listed = list(whole.view(ranks, count).unbind()) if kind in _LISTED and rank == root else None
    calls: dict[Kind, Callable[[], object]] = {
        Kind.ALL_REDUCE: lambda: dist.all_reduce(block, op),
        Kind.BROADCAST: lambda: dist.broadcast(block, root),
        Kind.REDUCE: lambda: dist.reduce(block, root, op),
        Kind.ALL_GATHER: lambda: dist.all_gather_into_tensor(whole, block),
        Kind.REDUCE_SCATTER: lambda: dist.reduce_scatter_tensor(block, whole, op),
        Kind.ALL_TO_ALL: lambda: dist.all_to_all_single(got, whole),
        Kind.GATHER: lambda: dist.gather(block, listed, dst=root),
        Kind.SCATTER: lambda: dist.scatter(block, listed, src=root),
    }
    return Bound(kind=kind, rank=rank, ranks=ranks, root=root, given=given, got=got, run=calls[kind])


_LISTED = (Kind.GATHER, Kind.SCATTER)


def _block(count: int, like: torch.Tensor) -> torch.Tensor:
    return torch.empty(count, dtype=like.dtype, device=like.device)


@contextlib.contextmanager
def old_names() -> Iterator[None]:
    """PyTorch 2.13 has new names for two of these calls and warns of the old; 2.11 has only the old."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=UserWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield
