"""The torch.distributed backend ``conccl``: a process group whose ranks share memory, for CPU tensors.

PyTorch lets a Python class be a process group, but not the backend of one device in a group of several: it
stands alone, as "conccl" or "cpu:conccl".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from conccl.core.errors import ExecutionError, InputError
from conccl.core.ops import CollectiveKind as Kind
from conccl.integrations.asked import only, reduction
from conccl.integrations.collectives import CollectiveCalls
from conccl.integrations.issuing import Issuer
from conccl.integrations.tensors import Target, dtype_name, finisher, readable
from conccl.integrations.work import Mailed, Tensors
from conccl.transports.board import MAIL
from conccl.transports.courier import Courier
from conccl.transports.host import Explanation, HostTransport
from conccl.transports.mail import ANY, Mail
from conccl.transports.rendezvous import join
from conccl.transports.rules import Reads
from conccl.transports.waiting import Waiting

TIMEOUT_S = 60.0
"""How long a call waits for its peers where the caller gave no timeout."""
_TORCH_DEFAULT = timedelta(minutes=30)
"""What torch.distributed passes where its caller gave none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """What a group of this backend can be told (``pg_options=``)."""

    slot_nbytes: int | None = None
    """Bytes of a slot of staging, of which each rank has four; None: what suits the group and its memory."""
    algorithms: Mapping[str, str] = field(default_factory=dict)
    """Collective -> algorithm to use instead of the one that would be chosen ({"all_reduce": "ring"})."""
    reads: str = "peers"
    """Where ranks read large messages: in "peers"' own memory, or in the "staging" that all share."""
    strict: bool = False
    """Refuse whatever is not the first choice (a segment with a name, waiting without futexes, peers whose
    memory cannot be read)."""


class ConcclProcessGroup(CollectiveCalls):
    """A group whose ranks share memory."""

    supports_splitting = False
    supports_coalescing = False

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        /,
        *,
        timeout: timedelta,
        options: BackendOptions | None = None,
    ) -> None:
        super().__init__(rank, size)
        options = options or BackendOptions()
        self._closed = True
        self._rank, self._size = rank, size
        self._store = store
        self._group_name = self._group_desc = ""
        seconds = TIMEOUT_S if timeout == _TORCH_DEFAULT else timeout.total_seconds()
        joined = join(
            store,
            rank=rank,
            count=size,
            timeout_s=seconds,
            slot_nbytes=options.slot_nbytes,
            reads=Reads(options.reads),
        )
        transport = HostTransport(
            joined.segment,
            joined.geometry,
            rank,
            timeout_s=seconds,
            name=self._called,
            fallback=joined.fallback,
            reads_peers=joined.reads_peers,
        )
        if options.strict and transport.fallbacks:
            transport.close()
            raise ExecutionError(f"strict: {'; '.join(transport.fallbacks)}.")
        self._transport = transport
        self._calls = Issuer(transport, algorithms=options.algorithms)
        waiting = Waiting(transport.board, transport.peers, door=MAIL, timeout_s=seconds)
        self._mail_waiting = waiting
        self._mail = Mail(joined.segment, joined.geometry, transport.board, waiting, name=self._called)
        self._courier = Courier(self._mail, waiting, transport.board)
        self._closed = False

    def _called(self) -> str:
        """What errors call the group."""
        return (
            self._group_name if self._group_desc in ("", "undefined") else self._group_desc
        ) or "without a name"

    def explain(
        self, kind: str, nbytes: int, /, *, dtype: torch.dtype = torch.float32, op: Any = None
    ) -> Explanation:
        """How a collective of so many bytes (counted as nccl-tests does) is carried out, and why so."""
        of = Kind(kind)
        whole = of in (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE, Kind.BARRIER)
        prepared = self._calls.prepare(
            of,
            (nbytes,) if whole else nbytes // self._size,
            dtype,
            reduction=reduction(op) if "reduce" in kind else "",
        )
        return self._transport.explain(prepared)

    def abort(self) -> None:
        """End the group on all ranks: calls in progress and later ones raise."""
        if not self._closed:
            self._transport.end("abort() was called")

    def shutdown(self) -> None:
        """Leave the group, after the calls that were issued."""
        if not self._closed:
            self._closed = True
            self._calls.close()
            self._courier.close()
            self._transport.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.shutdown()

    def set_timeout(self, timeout: timedelta) -> None:
        """How long calls wait for their peers from now on."""
        self._transport.waiting.timeout_s = self._mail_waiting.timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier with a timeout of its own; its error says where every rank is.

        ``wait_all_ranks`` changes nothing: all ranks are told of in any case.
        """
        del wait_all_ranks
        waiting = self._transport.waiting
        before = waiting.timeout_s
        if timeout is not None and timeout.total_seconds() > 0:
            waiting.timeout_s = timeout.total_seconds()
        try:
            self.barrier().wait()
        finally:
            waiting.timeout_s = before

    def send(self, tensors: Any, dst: int, tag: int = 0) -> dist.Work:
        """Send a tensor to a rank; done when its bytes are on their way."""
        source = readable(only(tensors))
        self._require_mail(dst)
        one = self._mail.post_send(
            dst,
            tag=tag,
            address=source.data_ptr(),
            nbytes=source.nbytes,
            dtype=dtype_name(source.dtype),
            keep=source,
        )
        return self._mailed(one, [source], None)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> dist.Work:
        """Receive a tensor from a rank."""
        tensor = only(tensors)
        target = Target(tensor, filled=False)
        self._require_mail(src)
        one = self._mail.post_receive(
            src,
            tag=tag,
            address=target.dense.data_ptr(),
            nbytes=target.dense.nbytes,
            dtype=dtype_name(tensor.dtype),
            keep=target,
        )
        return self._mailed(one, [tensor], finisher((target,)))

    def recv_anysource(self, tensors: Any, tag: int = 0) -> dist.Work:
        """Receive a tensor from whoever sends one first."""
        return self.recv(tensors, ANY, tag)

    def _require_mail(self, rank: int) -> None:
        self._calls.require_open()
        if rank != ANY and (not 0 <= rank < self._size or rank == self._rank):
            raise InputError(
                f"a message between rank {self._rank} and rank {rank}; the others of this group of"
                f" {self._size} are {', '.join(str(one) for one in range(self._size) if one != self._rank)}."
            )
        self._mail_waiting.raise_if_ended()

    def _mailed(self, one: Any, tensors: Tensors, finish: Callable[[], None] | None) -> dist.Work:
        self._courier.watch(one)
        return Mailed(one, self._courier, tensors, finish)

    def _start_coalescing(self, device: Any = None) -> None:
        """Calls are carried out as they come."""

    def _end_coalescing(self, device: Any = None) -> dist.Work:
        del device
        return self._calls.fence()

    # Who the group is.

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks the group has."""
        return self._size

    def name(self) -> str:
        """The backend's name."""
        return "conccl"

    getBackendName = name  # noqa: N815 (what C++ asks)

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    @property
    def group_name(self) -> str:
        """The group's name, unique among this process's groups."""
        return self._group_name

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    def getGroupName(self) -> str:  # noqa: N802 (what C++ asks)
        """The group's name."""
        return self._group_name

    @property
    def group_desc(self) -> str:
        """What the group is for."""
        return self._group_desc

    def _set_group_desc(self, text: str) -> None:
        self._group_desc = text

    def getGroupDesc(self) -> str:  # noqa: N802
        """What the group is for."""
        return self._group_desc

    def get_group_store(self) -> Any:
        """The store by which the group was made."""
        return self._store

    def _get_backend(self, device: Any) -> ConcclProcessGroup:
        if torch.device(device).type != "cpu":
            raise InputError(
                f"this group has no backend for {device}: the host transport takes CPU tensors. Make a second"
                " group for them (dist.new_group(backend='nccl'))."
            )
        return self

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Whether tensors should be allocated here: no, any CPU memory is as good."""
        del device
        return False

    def _set_sequence_number_for_group(self) -> None:
        """Calls are counted from the first on."""

    def _get_sequence_number_for_group(self) -> int:
        return self._transport.calls


def create(backend_options: Any, pg_options: Any) -> ConcclProcessGroup:
    """What torch.distributed calls to make a group."""
    if pg_options is not None and not isinstance(pg_options, BackendOptions):
        raise InputError(
            f"pg_options is a {type(pg_options).__name__}; a conccl group takes"
            " conccl.integrations.process_group.BackendOptions."
        )
    return ConcclProcessGroup(
        backend_options.store,
        backend_options.group_rank,
        backend_options.group_size,
        timeout=backend_options.timeout,
        options=pg_options,
    )
