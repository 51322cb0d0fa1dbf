"""What a fused call is to do: a product on a rank, and the way it goes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from conccl.integrations.fused.peers import Peers, told_of
from conccl.integrations.fused.rows import Blocks
from conccl.strategies.ways import Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """x[m, k] x weight[n, k]^T on a rank of a group, by a way."""

    call: str
    x: Tensor
    weight: Tensor
    peers: Peers
    way: Way

    @property
    def rows(self) -> int:
        """M: rows of the product."""
        return len(self.x)

    @property
    def columns(self) -> int:
        """N: columns of the product."""
        return len(self.weight)

    @property
    def blocks(self) -> Blocks:
        """The output's rows by rank."""
        return Blocks(rows=self.rows, ranks=self.peers.size)

    def empty(self, rows: int, /) -> Tensor:
        """Room for so many rows of output."""
        return self.x.new_empty((rows, self.columns))

    def chunk(self, index: int, count: int, /) -> told_of:
        """Where errors of this chunk come from."""
        return told_of(self.call, self.peers, chunk=f"chunk {index} of {count}")
