"""Linear layers split over the ranks of a group, with their collective fused into the GEMM.

They are drop-in: ``ColumnParallelLinear.split(linear, group=group)`` takes this rank's share of an
`nn.Linear` that all ranks have alike. A column-parallel layer holds some of the outputs, a row-parallel one
some of the inputs; the second behind the first needs one collective for both. With sequence parallelism the
activations outside of the two are rows of this rank alone, along the first dimension.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn

from conccl.core.errors import InputError
from conccl.integrations.fused import operators
from conccl.integrations.fused.functions import (
    all_gather_gemm,
    gemm_all_reduce,
    gemm_reduce_scatter,
    replicated_gemm,
)
from conccl.integrations.fused.peers import group_name, peers_of
from conccl.integrations.fused.products import NO_ACTIVATION
from conccl.strategies.ways import AUTO


class _ParallelLinear(nn.Module):
    """A rank's share of a linear layer; ``weight`` is [outputs, inputs], as `nn.Linear` has it."""

    _split: int
    """The dimension of the weight that is divided."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        /,
        *,
        bias: bool = True,
        group: Any = None,
        sequence_parallel: bool = False,
        activation: str = NO_ACTIVATION,
        way: str = AUTO,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.group = group_name(group)
        ranks = peers_of(self.group).size
        whole = (out_features, in_features)
        if whole[self._split] % ranks:
            raise InputError(
                f"{type(self).__name__}({in_features}, {out_features}) over {ranks} ranks:"
                f" {whole[self._split]} is no multiple of {ranks}."
            )
        shape = list(whole)
        shape[self._split] //= ranks
        self.in_features, self.out_features = in_features, out_features
        self.sequence_parallel = sequence_parallel
        self.activation, self.way = activation, way
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        outputs = shape[0]
        self.bias = nn.Parameter(torch.empty(outputs, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As `nn.Linear`, by the whole layer's inputs; a row-parallel bias must then be made alike on all."""
        bound = self.in_features**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    @classmethod
    def split(
        cls,
        linear: nn.Linear,
        /,
        *,
        group: Any = None,
        sequence_parallel: bool = False,
        activation: str = NO_ACTIVATION,
        way: str = AUTO,
    ) -> Self:
        """This rank's share of a layer that all ranks have alike."""
        layer = cls(
            linear.in_features,
            linear.out_features,
            bias=linear.bias is not None,
            group=group,
            sequence_parallel=sequence_parallel,
            activation=activation,
            way=way,
            device=linear.weight.device,
            dtype=linear.weight.dtype,
        )
        peers = peers_of(layer.group)
        with torch.no_grad():
            layer.weight.copy_(linear.weight.chunk(peers.size, cls._split)[peers.rank])
            if layer.bias is not None:
                whole = linear.bias
                layer.bias.copy_(whole.chunk(peers.size)[peers.rank] if cls._split == 0 else whole)
        return layer

    def extra_repr(self) -> str:
        """The whole layer's sizes, and how it is divided."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None},"
            f" ranks={peers_of(self.group).size}, sequence_parallel={self.sequence_parallel}, way={self.way}"
        )


class ColumnParallelLinear(_ParallelLinear):
    """A linear layer of which each rank makes some of the outputs.

    Takes [..., in_features] that all ranks have alike, or with ``sequence_parallel`` this rank's rows of it,
    which are gathered on the way. Returns [..., out_features / ranks].
    """

    _split = 0

    def forward(self, x: Tensor) -> Tensor:
        """This rank's outputs of all rows."""
        run = all_gather_gemm if self.sequence_parallel else replicated_gemm
        return run(x, self.weight, self.bias, activation=self.activation, group=self.group, way=self.way)


class RowParallelLinear(_ParallelLinear):
    """A linear layer of which each rank has some of the inputs.

    Takes [..., in_features / ranks], as a column-parallel layer returns it. Returns [..., out_features] on
    all ranks, or with ``sequence_parallel`` this rank's rows of it. Every rank has the whole bias; its
    gradient is the same on all of them.
    """

    _split = 1

    def forward(self, x: Tensor) -> Tensor:
        """All outputs, of all rows or of this rank's."""
        bias = self.bias
        if self.sequence_parallel and bias is not None:
            bias = operators.replicated(bias, self.group)
        run = gemm_reduce_scatter if self.sequence_parallel else gemm_all_reduce
        return run(x, self.weight, bias, activation=self.activation, group=self.group, way=self.way)
