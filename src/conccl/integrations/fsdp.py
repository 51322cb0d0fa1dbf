"""FSDP2 with conccl's collectives: the classes that `fully_shard` modules take as their communication.

The model may be sharded over a mesh of any backend; parameters are gathered and gradients reduced by a conccl
group of the same ranks, which is made once, before training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from conccl.core.errors import InputError
from conccl.integrations.functions import all_gather, conccl_group, reduce_scatter


def use_conccl(model: torch.nn.Module, /, *, group: Any = None) -> int:
    """Let all `fully_shard` modules of a model communicate by a conccl group; how many there are.

    ``group`` holds the ranks that the modules are sharded over, in the same order (None: the default group).
    """
    comms = ConcclAllGather(group), ConcclReduceScatter(group)
    modules = [one for one in model.modules() if isinstance(one, FSDPModule)]
    if not modules:
        raise InputError("the model has no fully_shard modules. Call fully_shard on it first.")
    for one in modules:
        one.set_custom_all_gather(comms[0])
        one.set_custom_reduce_scatter(comms[1])
    return len(modules)


class ConcclAllGather(AllGather):
    """Gathers parameters: ``module.set_custom_all_gather(ConcclAllGather(group))``."""

    def __init__(self, group: Any = None, /) -> None:
        self._group = conccl_group(group)

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Plain memory: any of a host is as good."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Every rank's shard to all ranks."""
        _require_same_ranks(self._group, group)
        return all_gather(output_tensor, input_tensor, group=self._group, async_op=async_op)


class ConcclReduceScatter(ReduceScatter):
    """Reduces gradients: ``module.set_custom_reduce_scatter(ConcclReduceScatter(group))``."""

    def __init__(self, group: Any = None, /) -> None:
        self._group = conccl_group(group)

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Plain memory: any of a host is as good."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Each rank's share of the gradients, reduced over all ranks."""
        _require_same_ranks(self._group, group)
        return reduce_scatter(output_tensor, input_tensor, op=op, group=self._group, async_op=async_op)


def _require_same_ranks(ours: Any, theirs: dist.ProcessGroup) -> None:
    """Blocks are placed by rank: a group of other ranks would shuffle parameters."""
    if (ours.rank(), ours.size()) != (theirs.rank(), theirs.size()):
        raise InputError(
            f"the modules are sharded as rank {theirs.rank()} of {theirs.size()}; the conccl group has this"
            f" process as rank {ours.rank()} of {ours.size()}. Make it of the mesh's ranks, in their order."
        )
