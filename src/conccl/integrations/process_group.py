"""The torch.distributed backend ``conccl``: collectives through `conccl.transports`, for CPU tensors.

A process group of its own (PyTorch lets Python classes be process groups, not device backends of one), so it
stands alone in its group: "conccl" or "cpu:conccl". Calls that are not asynchronous are carried out in the
caller's thread, others by one thread of the group, in the order in which they were issued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from conccl.collectives.layout import Place
from conccl.core.errors import ExecutionError, InputError, WaitTimeoutError
from conccl.core.ops import CollectiveKind as Kind
from conccl.integrations.tensors import (
    Target,
    apart,
    dtype_name,
    finisher,
    readable,
    require_nbytes,
    require_same_dtype,
)
from conccl.integrations.work import CallQueue, Finished, Mailed
from conccl.transports.board import MAIL
from conccl.transports.calls import Call
from conccl.transports.courier import Courier
from conccl.transports.host import Explanation, HostTransport, Prepared
from conccl.transports.mail import ANY, Mail
from conccl.transports.rendezvous import join
from conccl.transports.waiting import Waiting

TIMEOUT_S = 60.0
"""How long a call waits for its peers where the caller gave no timeout."""
_TORCH_DEFAULT = timedelta(minutes=30)
"""What torch.distributed passes where its caller gave none."""
_MOST_PREPARED = 4096

_REDUCTIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.BAND: "band",
    dist.ReduceOp.BOR: "bor",
    dist.ReduceOp.BXOR: "bxor",
}

Tensors = list[torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a group of this backend can be told (``pg_options=``)."""

    slot_nbytes: int | None = None
    """Bytes of a slot of staging, of which each rank has four; None: what suits the group and its memory."""
    algorithms: Mapping[str, str] = field(default_factory=dict)
    """Collective -> algorithm to use instead of the one that would be chosen ({"all_reduce": "ring"})."""
    strict: bool = False
    """Refuse whatever is not the first choice (a segment with a name, waiting without futexes)."""


class ConcclProcessGroup(dist.ProcessGroup):
    """A group whose ranks share memory."""

    supports_splitting = False
    supports_coalescing = False

    def __init__(
        self, store: Any, rank: int, size: int, /, *, timeout: timedelta, options: Options | None = None
    ) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._options = options or Options()
        self._store = store
        self._group_name = ""
        self._group_desc = ""
        self._closed = False
        seconds = TIMEOUT_S if timeout == _TORCH_DEFAULT else timeout.total_seconds()
        joined = join(
            store, rank=rank, count=size, timeout_s=seconds, slot_nbytes=self._options.slot_nbytes
        )
        transport = HostTransport(
            joined.segment, joined.geometry, rank, timeout_s=seconds, name=self._name, fallback=joined.fallback
        )
        if self._options.strict and transport.fallbacks:
            transport.close()
            raise ExecutionError(f"strict: {'; '.join(transport.fallbacks)}.")
        self._transport = transport
        waiting = Waiting(transport.board, transport.peers, door=MAIL, timeout_s=seconds)
        self._mail = Mail(joined.segment, joined.geometry, transport.board, waiting, name=self._name)
        self._courier = Courier(self._mail, waiting, transport.board)
        self._queue = CallQueue("conccl-calls")
        self._made: dict[Any, Prepared] = {}

    # What torch.distributed asks of a process group besides its collectives.

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks the group has."""
        return self._size

    def getBackendName(self) -> str:  # noqa: N802 (PyTorch's name)
        """The backend's name."""
        return "conccl"

    def name(self) -> str:
        """The backend's name."""
        return "conccl"

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    @property
    def group_name(self) -> str:
        """The group's name, unique among this process's groups."""
        return self._group_name

    def getGroupName(self) -> str:  # noqa: N802
        """The group's name."""
        return self._group_name

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    @property
    def group_desc(self) -> str:
        """What the group is for."""
        return self._group_desc

    def getGroupDesc(self) -> str:  # noqa: N802
        """What the group is for."""
        return self._group_desc

    def _set_group_desc(self, text: str) -> None:
        self._group_desc = text

    def get_group_store(self) -> Any:
        """The store by which the group was made."""
        return self._store

    def _get_backend(self, device: torch.device) -> ConcclProcessGroup:
        if torch.device(device).type != "cpu":
            raise InputError(f"this group has no backend for {device}; conccl's host transport takes CPU tensors.")
        return self

    def _set_sequence_number_for_group(self) -> None:
        """Calls are counted from the first on."""

    def _get_sequence_number_for_group(self) -> int:
        return self._transport.calls

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Whether tensors should be allocated here; CPU memory is as good as any."""
        del device
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        """How long calls wait for their peers from now on."""
        self._transport.waiting.timeout_s = timeout.total_seconds()

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def abort(self) -> None:
        """End the group on all ranks: their calls raise."""
        if not self._closed:
            self._transport.end("abort() was called")

    def shutdown(self) -> None:
        """Leave the group, after the calls that were issued."""
        if self._closed:
            return
        self._closed = True
        self._queue.close()
        self._courier.close()
        self._made.clear()
        self._transport.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.shutdown()

    def _name(self) -> str:
        return self._group_desc if self._group_desc not in ("", "undefined") else self._group_name or "default"

    def explain(
        self, kind: str, nbytes: int, /, *, dtype: torch.dtype = torch.float32, op: Any = dist.ReduceOp.SUM
    ) -> Explanation:
        """How a collective of so many bytes (counted as nccl-tests does) would be carried out, and why."""
        of = Kind(kind)
        count = {Kind.ALL_TO_ALL: self._size**2, Kind.BARRIER: 1}.get(of, self._size)
        whole = of in (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE, Kind.BARRIER)
        sizes = (nbytes,) if whole else (nbytes // self._size,) * count
        reduction = _reduction(op) if "reduce" in kind else ""
        call = self._call(of, sizes, dtype_name(dtype), reduction=reduction, place=_place(of))
        return self._transport.explain(self._transport.prepare(call))

    # Collectives. Names and arguments are those by which torch.distributed calls a process group.

    def allreduce(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        """Reduce each tensor over all ranks, in place."""
        opts = opts or dist.AllreduceOptions()
        works = [self._reduce_whole(Kind.ALL_REDUCE, one, opts, root=0) for one in tensors]
        return _all(works)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        """As `allreduce`, of several tensors."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Tensors, opts: Any) -> dist.Work:
        """Reduce over all ranks into the root's tensor; those of others keep what they hold."""
        return self._reduce_whole(Kind.REDUCE, _only(tensors), opts, root=opts.rootRank)

    def broadcast(self, tensors: Tensors, opts: Any) -> dist.Work:
        """The root's tensor to all ranks."""
        tensor, root = _only(tensors), opts.rootRank
        target = Target(tensor, filled=self._rank == root)
        prepared = self._prepare(Kind.BROADCAST, (target.dense.nbytes,), tensor, root=root)
        address = [target.dense.data_ptr()]
        return self._issue(prepared, address, address, [target], [tensor], opts)

    def _reduce_whole(self, kind: Kind, tensor: torch.Tensor, opts: Any, *, root: int) -> dist.Work:
        target = Target(tensor, filled=True)
        prepared = self._prepare(
            kind, (target.dense.nbytes,), tensor, root=root, reduction=_reduction(opts.reduceOp)
        )
        address = [target.dense.data_ptr()]
        return self._issue(prepared, address, address, [target], [tensor], opts)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        """Every rank's tensor to all ranks, into one tensor for each; they may differ in size."""
        return self._gather(_only(outputs), _only(inputs), opts or dist.AllgatherOptions())

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> dist.Work:
        """Every rank's tensor to the root."""
        source = readable(_only(inputs))
        if self._rank != opts.rootRank:
            sizes = (source.nbytes,) * self._size
            prepared = self._prepare(Kind.GATHER, sizes, source, root=opts.rootRank)
            return self._issue(prepared, [source.data_ptr()], [], [], [source], opts)
        return self._gather(_only(outputs), source, opts, kind=Kind.GATHER, root=opts.rootRank)

    def _gather(
        self,
        outputs: Tensors,
        tensor: torch.Tensor,
        opts: Any,
        *,
        kind: Kind = Kind.ALL_GATHER,
        root: int = 0,
    ) -> dist.Work:
        source = readable(tensor)
        self._require_count(outputs, "outputs")
        require_same_dtype(source, *outputs)
        targets = [Target(one, filled=False) for one in outputs]
        sizes = tuple(one.dense.nbytes for one in targets)
        require_nbytes(source, sizes[self._rank], "the input")
        for number, one in enumerate(targets):
            source = apart(source, one.dense, allowed=0 if number == self._rank else -1)
        prepared = self._prepare(kind, sizes, source, root=root)
        addresses = [one.dense.data_ptr() for one in targets]
        return self._issue(prepared, [source.data_ptr()], addresses, targets, outputs, opts, keep=source)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work:  # noqa: A002
        """Every rank's tensor to all ranks, one after the other in one tensor."""
        opts = opts or dist.AllgatherOptions()
        source, target = readable(input), Target(output, filled=False)
        require_same_dtype(source, output)
        nbytes, first = source.nbytes, target.dense.data_ptr()
        require_nbytes(output, nbytes * self._size, "the output")
        source = apart(source, target.dense, allowed=self._rank * nbytes)
        prepared = self._prepare(Kind.ALL_GATHER, nbytes, source)
        addresses = [first + one * nbytes for one in range(self._size)]
        return self._issue(prepared, [source.data_ptr()], addresses, [target], [output], opts, keep=source)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        """As `all_gather_single`, of several tensors."""
        return _all([self.all_gather_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        """As `allgather`, of several tensors: ``outputs[rank][number]``."""
        opts = opts or dist.AllgatherOptions()
        works = [
            self._gather([of_rank[number] for of_rank in outputs], one, opts)
            for number, one in enumerate(inputs)
        ]
        return _all(works)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any = None) -> dist.Work:
        """Reduce one tensor for each rank over all ranks; each gets its own. They may differ in size."""
        opts = opts or dist.ReduceScatterOptions()
        given, output = _only(inputs), _only(outputs)
        self._require_count(given, "inputs")
        require_same_dtype(output, *given)
        target = Target(output, filled=False)
        sources = [readable(one) for one in given]
        sources = [
            apart(one, target.dense, allowed=0 if number == self._rank else -1)
            for number, one in enumerate(sources)
        ]
        sizes = tuple(one.nbytes for one in sources)
        require_nbytes(output, sizes[self._rank], "the output")
        prepared = self._prepare(Kind.REDUCE_SCATTER, sizes, output, reduction=_reduction(opts.reduceOp))
        addresses = [one.data_ptr() for one in sources]
        return self._issue(
            prepared, addresses, [target.dense.data_ptr()], [target], [output], opts, keep=sources
        )

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work:  # noqa: A002
        """Reduce one tensor over all ranks; each gets its share, one after the other."""
        opts = opts or dist.ReduceScatterOptions()
        source, target = readable(input), Target(output, filled=False)
        require_same_dtype(source, output)
        nbytes = output.nbytes
        require_nbytes(source, nbytes * self._size, "the input")
        source = apart(source, target.dense, allowed=-self._rank * nbytes)
        prepared = self._prepare(Kind.REDUCE_SCATTER, nbytes, output, reduction=_reduction(opts.reduceOp))
        first = source.data_ptr()
        addresses = [first + one * nbytes for one in range(self._size)]
        return self._issue(
            prepared, addresses, [target.dense.data_ptr()], [target], [output], opts, keep=source
        )

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> dist.Work:
        """As `reduce_scatter_single`, of several tensors."""
        return _all([self.reduce_scatter_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> dist.Work:
        """One tensor of the root's to each rank."""
        output, root = _only(outputs), opts.rootRank
        target = Target(output, filled=False)
        address = [target.dense.data_ptr()]
        if self._rank != root:
            prepared = self._prepare(Kind.SCATTER, (output.nbytes,) * self._size, output, root=root)
            return self._issue(prepared, [], address, [target], [output], opts)
        given = _only(inputs)
        self._require_count(given, "inputs")
        require_same_dtype(output, *given)
        sources = [
            apart(readable(one), target.dense, allowed=0 if number == root else -1)
            for number, one in enumerate(given)
        ]
        for one in sources:
            require_nbytes(one, output.nbytes, "each input")
        prepared = self._prepare(Kind.SCATTER, (output.nbytes,) * self._size, output, root=root)
        addresses = [one.data_ptr() for one in sources]
        return self._issue(prepared, addresses, address, [target], [output], opts, keep=sources)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> dist.Work:
        """A block of rows for each rank to that rank; splits count rows, and blocks are equal without them."""
        opts = opts or dist.AllToAllOptions()
        source, target = readable(input), Target(output, filled=False)
        require_same_dtype(source, output)
        source = apart(source, target.dense)
        if not output_split_sizes and not input_split_sizes:
            self._require_rows(source, target.dense)
            nbytes = source.nbytes // self._size
            blocks, keep = [nbytes] * self._size, source
            prepared = self._prepare(Kind.ALL_TO_ALL, nbytes, source)
            return self._issue(
                prepared,
                _addresses(source, blocks),
                _addresses(target.dense, blocks),
                [target],
                [output],
                opts,
                keep=keep,
            )
        given = self._rows_nbytes(source, input_split_sizes, "input")
        got = self._rows_nbytes(target.dense, output_split_sizes, "output")
        return self._exchange(
            given, got, _addresses(source, given), _addresses(target.dense, got), [target], [output], source, opts
        )

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        """A tensor for each rank to that rank."""
        opts = opts or dist.AllToAllOptions()
        self._require_count(outputs, "outputs")
        self._require_count(inputs, "inputs")
        require_same_dtype(*inputs, *outputs)
        targets = [Target(one, filled=False) for one in outputs]
        sources = [readable(one) for one in inputs]
        for target in targets:
            sources = [apart(one, target.dense) for one in sources]
        return self._exchange(
            [one.nbytes for one in sources],
            [one.dense.nbytes for one in targets],
            [one.data_ptr() for one in sources],
            [one.dense.data_ptr() for one in targets],
            targets,
            outputs,
            sources,
            opts,
        )

    def _exchange(
        self,
        given: Sequence[int],
        got: Sequence[int],
        addresses: list[int],
        to: list[int],
        targets: list[Target],
        outputs: Tensors,
        keep: Any,
        opts: Any,
    ) -> dist.Work:
        """all_to_all of blocks that each rank knows its own sizes of: tell each other, then move them."""
        mine = torch.tensor([given], dtype=torch.int64)
        all_sizes = torch.empty((self._size, self._size), dtype=torch.int64)
        dtype = outputs[0] if outputs else mine

        def run() -> None:
            told = self._prepare(Kind.ALL_GATHER, mine.nbytes, mine)
            row = mine.nbytes
            places = [all_sizes.data_ptr() + one * row for one in range(self._size)]
            self._transport.run(told, inputs=[mine.data_ptr()], outputs=places)
            matrix = all_sizes.tolist()
            theirs = [row[self._rank] for row in matrix]
            if theirs != list(got):
                self._transport.disagree(
                    f"all_to_all: rank {self._rank} expects {list(got)} bytes from ranks 0 to"
                    f" {self._size - 1}, which send it {theirs}"
                )
            sizes = tuple(size for row in matrix for size in row)
            self._transport.run(self._prepare(Kind.ALL_TO_ALL, sizes, dtype), inputs=addresses, outputs=to)

        return self._start(run, targets, outputs, opts, keep=(keep, mine))

    def barrier(self, opts: Any = None) -> dist.Work:
        """Wait until all ranks have come here."""
        prepared = self._prepare(Kind.BARRIER, (0,), None)
        return self._issue(prepared, [], [], [], [], opts or dist.BarrierOptions())

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier of its own timeout; its error says where every rank is."""
        del wait_all_ranks  # every rank's place is told in any case
        waiting = self._transport.waiting
        before = waiting.timeout_s
        if timeout is not None and timeout.total_seconds() > 0:
            waiting.timeout_s = timeout.total_seconds()
        try:
            opts = dist.BarrierOptions()
            opts.asyncOp = False
            self.barrier(opts).wait()
        finally:
            waiting.timeout_s = before

    # Point to point.

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> dist.Work:
        """Send a tensor to a rank; done when its bytes are on their way."""
        source = readable(_only(tensors))
        self._require_open()
        one = self._mail.post_send(
            dst,
            tag=tag,
            address=source.data_ptr(),
            nbytes=source.nbytes,
            dtype=dtype_name(source.dtype),
            keep=source,
        )
        return self._mailed(one, tensors, None)

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> dist.Work:
        """Receive a tensor from a rank."""
        tensor = _only(tensors)
        target = Target(tensor, filled=False)
        self._require_open()
        one = self._mail.post_receive(
            src,
            tag=tag,
            address=target.dense.data_ptr(),
            nbytes=target.dense.nbytes,
            dtype=dtype_name(tensor.dtype),
            keep=target,
        )
        return self._mailed(one, tensors, finisher([target]))

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        """Receive a tensor from whoever sends one first."""
        return self.recv(tensors, ANY, tag)

    def _mailed(self, one: Any, tensors: Tensors, finish: Callable[[], None] | None) -> dist.Work:
        self._transport.waiting.raise_if_ended()
        self._courier.watch(one)
        return Mailed(one, self._courier, tensors, finish)

    # Coalescing: calls run as they come; the end is a work that is done when all are.

    def _start_coalescing(self, device: Any = None) -> None:
        del device

    def _end_coalescing(self, device: Any = None) -> dist.Work:
        del device
        if self._queue.is_idle:
            return Finished([])
        return self._queue.put(lambda: None, [])

    # How calls are issued.

    def _prepare(
        self,
        kind: Kind,
        sizes: int | tuple[int, ...],
        tensor: torch.Tensor | None,
        *,
        root: int = 0,
        reduction: str = "",
    ) -> Prepared:
        """The call, made ready; ``sizes`` as a number are equal blocks of so many bytes."""
        dtype = dtype_name(tensor.dtype) if tensor is not None else "uint8"
        key = (kind, sizes, dtype, root, reduction)
        found = self._made.get(key)
        if found is None:
            self._require_open()
            blocks = sizes
            if isinstance(blocks, int):
                blocks = (blocks,) * (self._size**2 if kind is Kind.ALL_TO_ALL else self._size)
            call = self._call(kind, blocks, dtype, root=root, reduction=reduction, place=_place(kind))
            found = self._transport.prepare(call)
            if len(self._made) >= _MOST_PREPARED:
                self._made.clear()
            self._made[key] = found
        return found

    def _call(self, kind: Kind, sizes: tuple[int, ...], dtype: str, **more: Any) -> Call:
        return Call(kind=kind, sizes=sizes, dtype=dtype, algorithm=self._options.algorithms.get(kind), **more)

    def _issue(
        self,
        prepared: Prepared,
        inputs: list[int],
        outputs: list[int],
        targets: list[Target],
        result: Tensors,
        opts: Any,
        *,
        keep: Any = None,
    ) -> dist.Work:
        if not getattr(opts, "asyncOp", True) and self._queue.is_idle:
            self._transport.run(prepared, inputs=inputs, outputs=outputs)
            for one in targets:
                one.finish()
            return Finished(result)
        run = partial(self._transport.run, prepared, inputs=inputs, outputs=outputs)
        return self._start(run, targets, result, opts, keep=keep)

    def _start(
        self, run: Callable[[], None], targets: list[Target], result: Tensors, opts: Any, *, keep: Any
    ) -> dist.Work:
        finish = finisher(targets)

        def all_of_it(keep: Any = (keep, targets)) -> None:
            del keep
            run()
            if finish is not None:
                finish()

        if not getattr(opts, "asyncOp", True) and self._queue.is_idle:
            all_of_it()
            return Finished(result)
        self._require_open()
        work = self._queue.put(all_of_it, result)
        if not getattr(opts, "asyncOp", True):
            work.wait()
        return work

    def _require_open(self) -> None:
        if self._closed:
            raise ExecutionError(f"group {self._name()!r} has been destroyed. Make a new one.")

    def _require_count(self, tensors: Tensors, what: str) -> None:
        if len(tensors) != self._size:
            raise InputError(f"{len(tensors)} {what}; a group of {self._size} ranks needs {self._size}.")

    def _require_rows(self, source: torch.Tensor, target: torch.Tensor) -> None:
        require_nbytes(target, source.nbytes, "the output")
        if source.nbytes and (source.dim() == 0 or source.shape[0] % self._size):
            raise InputError(
                f"all_to_all_single of {source.shape[0] if source.dim() else 1} rows among {self._size} ranks:"
                " give split sizes, or rows that the ranks divide."
            )

    def _rows_nbytes(self, tensor: torch.Tensor, splits: Sequence[int], what: str) -> list[int]:
        """Bytes of each block of rows."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                raise InputError(f"the {what} has {rows} rows, which {self._size} ranks do not divide.")
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows or min(splits) < 0:
            raise InputError(
                f"{what} splits {list(splits)} must be {self._size} counts that sum to its {rows} rows."
            )
        row = tensor.nbytes // rows if rows else 0
        return [one * row for one in splits]


def create(backend_options: Any, pg_options: Any) -> ConcclProcessGroup:
    """What torch.distributed calls to make a group."""
    if pg_options is not None and not isinstance(pg_options, Options):
        raise InputError(
            f"pg_options is a {type(pg_options).__name__}; a conccl group takes"
            " conccl.integrations.process_group.Options."
        )
    return ConcclProcessGroup(
        backend_options.store,
        backend_options.group_rank,
        backend_options.group_size,
        timeout=backend_options.timeout,
        options=pg_options,
    )


def _reduction(op: Any) -> str:
    found = _REDUCTIONS.get(getattr(op, "op", op))
    if found is None:
        raise InputError(f"{op} is not supported; {', '.join(one.name for one in _REDUCTIONS)} are.")
    return found


def _place(kind: Kind) -> Place:
    """torch.distributed's calls of whole messages are in place."""
    return Place.IN_PLACE if kind in (Kind.ALL_REDUCE, Kind.REDUCE, Kind.BROADCAST) else Place.OUT_OF_PLACE


def _only(items: Sequence[Any]) -> Any:
    if len(items) != 1:
        raise InputError(f"{len(items)} tensors (or lists) in a call that takes one; a rank has one CPU.")
    return items[0]


def _all(works: list[dist.Work]) -> dist.Work:
    """One work for several calls: the last, since they are carried out in order."""
    return works[-1] if works else Finished([])


def _addresses(tensor: torch.Tensor, sizes: Sequence[int]) -> list[int]:
    at = tensor.data_ptr()
    addresses = []
    for size in sizes:
        addresses.append(at)
        at += size
    return addresses


__all__ = ["ConcclProcessGroup", "Options", "WaitTimeoutError", "create"]
