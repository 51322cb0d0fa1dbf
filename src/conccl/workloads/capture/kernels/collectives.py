"""Collectives of torch.distributed as NCCL runs them, each on its group's stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from conccl.core.kinds import CollectiveKind, DType
from conccl.core.ops import Collective, Copy
from conccl.workloads.capture.tensors import dtype_of, is_on_device, tensors_in, touched_nbytes
from conccl.workloads.captured import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A collective as it was called on one rank."""

    kind: CollectiveKind
    nbytes: int
    """Counted as nccl-tests does."""
    group: Any
    members: tuple[int, ...]
    """Ranks of the job that take part."""
    tensors: tuple[torch.Tensor, ...]
    """What it writes."""
    copied: tuple[torch.Tensor, ...] = ()
    """Tensors of lists, which NCCL's flat buffer is copied to or from."""
    waits: bool = False
    """Whether the stream that it is called on waits for it."""

    def kernels(self, name: str, /, *, per_node: int) -> Iterator[Kernel]:
        """What it launches in a job of so many GPUs a node."""
        op = Collective(
            kind=self.kind,
            nbytes=self.nbytes,
            ranks=2 if self.kind in _PAIRWISE else self.group.size(),
            dtype=dtype_of(self.tensors[0]) if self.tensors else DType.UINT8,
            ranks_per_node=_together(self.members, per_node=per_node),
        )
        copies = [
            Kernel(name="copy_", op=Copy(nbytes=touched_nbytes(tensor)))
            for tensor in self.copied
            if tensor.numel()
        ]
        if self.kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER):
            yield from copies
        yield Kernel(name=name, op=op)
        if self.kind in (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER):
            yield from copies


def _together(members: Sequence[int], *, per_node: int) -> int:
    """How many of these ranks share a node, where they lie most densely."""
    return max(Counter(rank // per_node for rank in members).values())


_PAIRWISE = (CollectiveKind.SEND, CollectiveKind.RECV)


def called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, /) -> Called | None:
    """What the op does among ranks; None where it is no collective."""
    namespace, _, name = func._schema.name.partition("::")
    rule = _RULES.get(name) if namespace in _NAMESPACES else None
    if rule is None:
        return None
    given = {
        argument.name: args[index] if index < len(args) else kwargs.get(argument.name, argument.default_value)
        for index, argument in enumerate(func._schema.arguments)
    }
    kind, counted = rule
    functional = namespace != "c10d"
    group = _group(given)
    written = _device_tensors(out) if functional else _device_tensors(list(args[:1]))
    lists = any(name == own for own in ("allgather_", "reduce_scatter_", "gather_", "scatter_"))
    return Called(
        kind=kind,
        nbytes=counted(given, out, group.size()),
        group=group,
        members=_members(kind, given, group),
        tensors=tuple(written),
        copied=tuple(_device_tensors(_list_of(name, args))) if lists else (),
        waits=not functional and given.get("async_op") is False,
    )


def _list_of(name: str, args: Sequence[Any]) -> Any:
    return args[0] if name in ("allgather_", "gather_") else args[1]


def _device_tensors(value: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(value) if is_on_device(tensor)]


def _group(given: dict[str, Any]) -> Any:
    if "process_group" in given:
        return distributed.ProcessGroup.unbox(given["process_group"])
    named = given["group_name"]
    c10d: Any = distributed.distributed_c10d
    return c10d._resolve_process_group(named)


def _members(kind: CollectiveKind, given: dict[str, Any], group: Any) -> tuple[int, ...]:
    """All of the group, or this rank and its peer; whom it receives from may be open."""
    ranks = distributed.get_process_group_ranks(group)
    if kind not in _PAIRWISE:
        return tuple(ranks)
    peer = given.get("dst", given.get("src"))
    mine = distributed.get_rank(group)
    other = mine if peer is None else int(peer)
    return (ranks[mine], ranks[other])


def _bytes(value: Any) -> int:
    return sum(map(touched_nbytes, _device_tensors(value)))


def _first(given: dict[str, Any], _: Any, __: int) -> int:
    """Of what stands first: the tensor that is changed, or the one that is read whole."""
    return _bytes(next(iter(given.values())))


def _second(given: dict[str, Any], _: Any, __: int) -> int:
    return _bytes(list(given.values())[1])


def _gathered(given: dict[str, Any], _: Any, ranks: int) -> int:
    return ranks * _bytes(next(iter(given.values())))


_NAMESPACES = ("c10d", "_c10d_functional", "_dtensor")

_Counted = Callable[[dict[str, Any], Any, int], int]

_RULES: dict[str, tuple[CollectiveKind, _Counted]] = {
    "allreduce_": (CollectiveKind.ALL_REDUCE, _first),
    "allreduce_coalesced_": (CollectiveKind.ALL_REDUCE, _first),
    "allgather_": (CollectiveKind.ALL_GATHER, _first),
    "_allgather_base_": (CollectiveKind.ALL_GATHER, _first),
    "allgather_into_tensor_coalesced_": (CollectiveKind.ALL_GATHER, _first),
    "reduce_scatter_": (CollectiveKind.REDUCE_SCATTER, _second),
    "_reduce_scatter_base_": (CollectiveKind.REDUCE_SCATTER, _second),
    "reduce_scatter_tensor_coalesced_": (CollectiveKind.REDUCE_SCATTER, _second),
    "broadcast_": (CollectiveKind.BROADCAST, _first),
    "broadcast": (CollectiveKind.BROADCAST, _first),
    "reduce_": (CollectiveKind.REDUCE, _first),
    "gather_": (CollectiveKind.GATHER, _first),
    "scatter_": (CollectiveKind.SCATTER, _second),
    "alltoall_": (CollectiveKind.ALL_TO_ALL, _second),
    "alltoall_base_": (CollectiveKind.ALL_TO_ALL, _second),
    "barrier": (CollectiveKind.BARRIER, _first),
    "send": (CollectiveKind.SEND, _first),
    "recv_": (CollectiveKind.RECV, _first),
    "recv_any_source_": (CollectiveKind.RECV, _first),
    "isend": (CollectiveKind.SEND, _first),
    "irecv": (CollectiveKind.RECV, _first),
    "all_reduce": (CollectiveKind.ALL_REDUCE, _first),
    "all_reduce_": (CollectiveKind.ALL_REDUCE, _first),
    "all_reduce_coalesced": (CollectiveKind.ALL_REDUCE, _first),
    "all_reduce_coalesced_": (CollectiveKind.ALL_REDUCE, _first),
    "all_gather_into_tensor": (CollectiveKind.ALL_GATHER, _gathered),
    "all_gather_into_tensor_out": (CollectiveKind.ALL_GATHER, _gathered),
    "all_gather_into_tensor_coalesced": (CollectiveKind.ALL_GATHER, _gathered),
    "reduce_scatter_tensor": (CollectiveKind.REDUCE_SCATTER, _first),
    "reduce_scatter_tensor_out": (CollectiveKind.REDUCE_SCATTER, _first),
    "reduce_scatter_tensor_coalesced": (CollectiveKind.REDUCE_SCATTER, _first),
    "all_to_all_single": (CollectiveKind.ALL_TO_ALL, _first),
    "shard_dim_alltoall": (CollectiveKind.ALL_TO_ALL, _first),
}
"""Name of the op -> what NCCL does, and of which arguments the bytes count."""
