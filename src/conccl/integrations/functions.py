"""Collectives as functions: those of torch.distributed on a conccl group, with tensors or lists of them.

A group is a process group of the backend ``conccl``; None is the default group, which then must be one. A
function returns None when its call is complete, or with ``async_op`` a `torch.distributed.Work` at once.
Roots, sources and destinations are ranks of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions

from conccl.core.errors import InputError
from conccl.integrations.process_group import ConcclProcessGroup
from conccl.integrations.work import Tensors

SUM = dist.ReduceOp.SUM


def all_gather(
    output: torch.Tensor | Tensors,
    input: torch.Tensor,  # noqa: A002 (PyTorch's name)
    /,
    *,
    group: Any = None,
    async_op: bool = False,
) -> dist.Work | None:
    """Every rank's input to all ranks.

    ``output`` is one tensor of as many times the input's elements as there are ranks, in whose place for this
    rank the input may lie, or a list of a tensor for each rank; those may differ in size.
    """
    to, opts = _group(group), _opts(AllgatherOptions(), async_op)
    if isinstance(output, torch.Tensor):
        return _end(to.all_gather_single(output, input, opts), async_op)
    return _end(to.allgather([output], [input], opts), async_op)


def reduce_scatter(
    output: torch.Tensor,
    input: torch.Tensor | Tensors,  # noqa: A002
    /,
    *,
    op: Any = SUM,
    group: Any = None,
    async_op: bool = False,
) -> dist.Work | None:
    """Reduce over all ranks; each gets its share of one tensor, or its tensor of a list."""
    to, opts = _group(group), _opts(dist.ReduceScatterOptions(), async_op)
    opts.reduceOp = op
    if isinstance(input, torch.Tensor):
        return _end(to.reduce_scatter_single(output, input, opts), async_op)
    return _end(to.reduce_scatter([output], [input], opts), async_op)


def all_reduce(
    tensor: torch.Tensor, /, *, op: Any = SUM, group: Any = None, async_op: bool = False
) -> dist.Work | None:
    """Reduce a tensor over all ranks, in place."""
    to, opts = _group(group), _opts(dist.AllreduceOptions(), async_op)
    opts.reduceOp = op
    return _end(to.allreduce([tensor], opts), async_op)


def all_to_all(
    output: torch.Tensor | Tensors,
    input: torch.Tensor | Tensors,  # noqa: A002
    /,
    *,
    output_split_sizes: Sequence[int] = (),
    input_split_sizes: Sequence[int] = (),
    group: Any = None,
    async_op: bool = False,
) -> dist.Work | None:
    """A block of rows, or a tensor of a list, for each rank to that rank; splits count rows."""
    to, opts = _group(group), _opts(dist.AllToAllOptions(), async_op)
    if isinstance(output, torch.Tensor) and isinstance(input, torch.Tensor):
        splits = list(output_split_sizes), list(input_split_sizes)
        return _end(to.all_to_all_single(output, input, *splits, opts), async_op)
    if isinstance(output, torch.Tensor) or isinstance(input, torch.Tensor):
        raise InputError("all_to_all takes two tensors, or two lists of a tensor for each rank.")
    return _end(to.alltoall(output, input, opts), async_op)


def broadcast(
    tensor: torch.Tensor, /, *, root: int = 0, group: Any = None, async_op: bool = False
) -> dist.Work | None:
    """The root's tensor to all ranks, in place."""
    opts = _opts(dist.BroadcastOptions(), async_op)
    opts.rootRank = root
    return _end(_group(group).broadcast([tensor], opts), async_op)


def reduce(
    tensor: torch.Tensor,
    /,
    *,
    root: int = 0,
    op: Any = SUM,
    group: Any = None,
    async_op: bool = False,
) -> dist.Work | None:
    """Reduce a tensor over all ranks into the root's; others keep theirs."""
    opts = _opts(dist.ReduceOptions(), async_op)
    opts.rootRank, opts.reduceOp = root, op
    return _end(_group(group).reduce([tensor], opts), async_op)


def gather(
    outputs: Tensors | None,
    input: torch.Tensor,  # noqa: A002
    /,
    *,
    root: int = 0,
    group: Any = None,
    async_op: bool = False,
) -> dist.Work | None:
    """Every rank's input to the root, whose ``outputs`` are a tensor for each; others pass None."""
    opts = _opts(dist.GatherOptions(), async_op)
    opts.rootRank = root
    return _end(_group(group).gather([outputs] if outputs else [], [input], opts), async_op)


def scatter(
    output: torch.Tensor,
    inputs: Tensors | None,
    /,
    *,
    root: int = 0,
    group: Any = None,
    async_op: bool = False,
) -> dist.Work | None:
    """One of the root's ``inputs`` to each rank; others pass None."""
    opts = _opts(dist.ScatterOptions(), async_op)
    opts.rootRank = root
    return _end(_group(group).scatter([output], [inputs] if inputs else [], opts), async_op)


def send(
    tensor: torch.Tensor, /, *, to: int, tag: int = 0, group: Any = None, async_op: bool = False
) -> dist.Work | None:
    """Send a tensor to a rank; complete when its bytes are on their way."""
    return _end(_group(group).send([tensor], to, tag), async_op)


def recv(
    tensor: torch.Tensor,
    /,
    *,
    source: int | None = None,
    tag: int = 0,
    group: Any = None,
    async_op: bool = False,
) -> dist.Work | None:
    """Receive a tensor from a rank, or from whoever sends first."""
    where = _group(group)
    work = where.recv_anysource([tensor], tag) if source is None else where.recv([tensor], source, tag)
    return _end(work, async_op)


def barrier(*, group: Any = None, async_op: bool = False) -> dist.Work | None:
    """Wait until all ranks have come here."""
    return _end(_group(group).barrier(_opts(dist.BarrierOptions(), async_op)), async_op)


def conccl_group(group: Any = None, /) -> ConcclProcessGroup:
    """The group, if it is one of ours."""
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    if isinstance(group, ConcclProcessGroup):
        return group
    raise InputError(
        f"the group's backend is {dist.get_backend(group)!r}; this takes a group of 'conccl'. Make one:"
        " conccl.register_backend(); group = torch.distributed.new_group(backend='conccl')."
    )


_group = conccl_group


def _opts(opts: Any, async_op: bool) -> Any:
    opts.asyncOp = async_op
    return opts


def _end(work: dist.Work, async_op: bool) -> dist.Work | None:
    if async_op:
        return work
    work.wait()
    return None
