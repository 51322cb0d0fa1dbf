"""The ranks that take part in a fused operator, and what they tell each other before the first call."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from conccl.core.errors import DisagreementError, ExecutionError, InputError

_AGREED: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
"""Group -> calls whose sizes all of its ranks have told each other."""

_constant: Any = torch.compiler.assume_constant_result
"""Compiled code holds what the function returns."""

_resolve: Any = distributed_c10d._resolve_process_group  # type: ignore[attr-defined]

_TEXT_NBYTES = 192
"""Room for what a rank says of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """A process group, seen from one of its ranks."""

    group: Any
    rank: int
    size: int

    def rank_in_world(self, rank: int, /) -> int:
        """The number that point-to-point calls know a rank of the group by."""
        return dist.get_global_rank(self.group, rank)


@_constant  # type: ignore[untyped-decorator]
def group_name(group: Any = None, /) -> str:
    """The name of a group, by which custom ops know it (None: the default group)."""
    if isinstance(group, str):
        return group
    if group is None:
        if not dist.is_initialized():
            raise InputError(
                "no group is given and torch.distributed has no default group. Call init_process_group, or"
                " pass group=."
            )
        group = distributed_c10d._get_default_group()
    if not isinstance(group, dist.ProcessGroup):
        raise InputError(
            f"group is {group!r}; it must be a process group that this rank belongs to, its name, or None."
        )
    return str(group.group_name)


@_constant  # type: ignore[untyped-decorator]
def group_size(name: str, /) -> int:
    """How many ranks the group of a name has; compiled code may hold it as a constant."""
    return peers_of(name).size


def peers_of(name: str, /) -> Peers:
    """The group of a name."""
    try:
        group = _resolve(name)
    except (RuntimeError, KeyError) as error:
        raise InputError(f"no process group is called {name!r} here: {error}") from error
    return Peers(group=group, rank=group.rank(), size=group.size())


def agree(peers: Peers, call: str, /, *, device: torch.device) -> None:
    """Refuse a call that the ranks do not make alike; they tell each other once for each kind of call.

    Ranks that have always agreed know the same calls, so where they part, the first call that differs is new
    to one of them at least, and new to all where their sizes differ from the start.
    """
    known = _AGREED.setdefault(peers.group, set())
    if peers.size == 1 or call in known:
        return
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return  # a capture must not wait for its own result
    said = call.encode()[:_TEXT_NBYTES].ljust(_TEXT_NBYTES)
    mine = torch.frombuffer(bytearray(said), dtype=torch.uint8).to(device)
    all_of_them = torch.empty(peers.size * _TEXT_NBYTES, dtype=torch.uint8, device=device)
    with told_of(call, peers):
        gather_into(all_of_them, mine, peers).wait()
    texts = [
        bytes(row.tolist()).decode(errors="replace").strip()
        for row in all_of_them.cpu().view(peers.size, _TEXT_NBYTES)
    ]
    other = next((rank for rank, text in enumerate(texts) if text != texts[peers.rank]), None)
    if other is not None:
        raise DisagreementError(
            f"rank {peers.rank} calls {texts[peers.rank]}, rank {other} calls {texts[other]}."
            " All ranks of a group make the same call with the same sizes, dtype and way."
        )
    known.add(call)


class told_of:  # noqa: N801 (used as a statement)
    """Errors inside say which call, which chunk of it and which rank they are of."""

    def __init__(self, call: str, peers: Peers, /, *, chunk: str = "") -> None:
        self._call = call
        self._peers = peers
        self._chunk = chunk

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        del kind, trace
        if error is None or isinstance(error, InputError) or not isinstance(error, Exception):
            return
        where = f"{self._call}{', ' + self._chunk if self._chunk else ''}, rank {self._peers.rank}"
        kept = type(error) if isinstance(error, ExecutionError) else ExecutionError
        raise kept(f"{where} of {self._peers.size}: {error}") from error


# PyTorch 2.13 has new names for these and warns of the old ones; 2.11 has only the old ones.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def gather_into(output: torch.Tensor, given: torch.Tensor, peers: Peers, /) -> Any:
    """Every rank's tensor, one behind the other; asynchronous."""
    return _gather(output, given, group=peers.group, async_op=True)


def reduce_scatter_into(output: torch.Tensor, given: torch.Tensor, peers: Peers, /) -> Any:
    """This rank's share of the sum; asynchronous."""
    return _scatter(output, given, group=peers.group, async_op=True)


def all_reduce_in_place(tensor: torch.Tensor, peers: Peers, /) -> Any:
    """The sum, in place; asynchronous."""
    return dist.all_reduce(tensor, group=peers.group, async_op=True)


def exchange_into(
    output: torch.Tensor, given: torch.Tensor, peers: Peers, /, *, got: list[int], sent: list[int]
) -> Any:
    """So many rows to and from each rank; asynchronous."""
    return dist.all_to_all_single(output, given, got, sent, group=peers.group, async_op=True)


class Passing:
    """A block sent to one rank while another one's is received."""

    def __init__(
        self,
        peers: Peers,
        /,
        *,
        to: int,
        sent: torch.Tensor | None,
        source: int,
        got: torch.Tensor | None,
    ) -> None:
        ops = []
        if sent is not None and sent.numel():
            ops.append(dist.P2POp(dist.isend, sent, peers.rank_in_world(to), group=peers.group))
        if got is not None and got.numel():
            ops.append(dist.P2POp(dist.irecv, got, peers.rank_in_world(source), group=peers.group))
        self._works = dist.batch_isend_irecv(ops) if ops else []
        self._kept = (sent, got)

    def wait(self) -> None:
        """Until both are through."""
        for work in self._works:
            work.wait()
