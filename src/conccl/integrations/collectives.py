"""torch.distributed's collectives as calls of a transport: which blocks lie where, of what sizes.

Names and arguments are those by which torch.distributed and PyTorch's C++ code call a process group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from conccl.core.errors import InputError
from conccl.core.ops import CollectiveKind as Kind
from conccl.integrations.asked import Asked, asked, listed, only, only_list
from conccl.integrations.issuing import Issuer
from conccl.integrations.tensors import (
    Target,
    addresses_of,
    apart,
    readable,
    require_nbytes,
    require_same_dtype,
    rows_nbytes,
)
from conccl.integrations.work import Finished, Tensors

# Its overloads, which the methods below cover, are more than a type checker can match.
_Base: Any = dist.ProcessGroup


class CollectiveCalls(_Base):  # type: ignore[misc]
    """The collectives of a process group; needs ``_calls``, and rank and size."""

    _calls: Issuer
    _rank: int
    _size: int

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None, *, op: Any = None) -> dist.Work:
        """Reduce each tensor over all ranks, in place."""
        del timeout
        how = asked(opts, op=op)
        works = [self._whole(Kind.ALL_REDUCE, one, how, reduction=how.reduction) for one in listed(tensors)]
        return works[-1] if works else Finished([])

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        """As `allreduce`, of several tensors."""
        return self.allreduce(tensors, opts)

    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None, *, root: int = 0
    ) -> dist.Work:
        """Reduce over all ranks into the root's tensor; those of others keep what they hold."""
        del timeout
        how = asked(opts, op=op, root=root)
        return self._whole(Kind.REDUCE, only(tensors), how, reduction=how.reduction)

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None, *, root: int = 0) -> dist.Work:
        """The root's tensor to all ranks."""
        del timeout
        return self._whole(Kind.BROADCAST, only(tensors), asked(opts, root=root))

    def _whole(self, kind: Kind, tensor: torch.Tensor, how: Asked, *, reduction: str = "") -> dist.Work:
        root = 0 if kind is Kind.ALL_REDUCE else how.root
        target = Target(tensor, filled=kind is not Kind.BROADCAST or self._rank == root)
        dense = target.dense
        prepared = self._calls.prepare(kind, (dense.nbytes,), dense.dtype, root=root, reduction=reduction)
        address = (dense.data_ptr(),)
        return self._calls.issue(
            prepared,
            inputs=address,
            outputs=address,
            targets=(target,),
            result=[tensor],
            is_async=how.is_async,
        )

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> dist.Work:
        """Every rank's tensor to all ranks, into one tensor for each; they may differ in size."""
        del timeout
        return self._gather(Kind.ALL_GATHER, only_list(outputs), only(inputs), asked(opts))

    def gather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, *, root: int = 0
    ) -> dist.Work:
        """Every rank's tensor to the root; all are equally large."""
        del timeout
        how, tensor = asked(opts, root=root), only(inputs)
        if self._rank == how.root:
            return self._gather(Kind.GATHER, only_list(outputs), tensor, how)
        source = readable(tensor)
        prepared = self._calls.prepare(Kind.GATHER, source.nbytes, source.dtype, root=how.root)
        return self._calls.issue(
            prepared,
            inputs=(source.data_ptr(),),
            outputs=(),
            targets=(),
            result=[],
            is_async=how.is_async,
            keep=source,
        )

    def _gather(self, kind: Kind, outputs: Tensors, tensor: torch.Tensor, how: Asked) -> dist.Work:
        source = readable(tensor)
        self._require_count(outputs, "outputs")
        require_same_dtype(source, *outputs)
        targets = [Target(one, filled=False) for one in outputs]
        sizes = tuple(one.dense.nbytes for one in targets)
        require_nbytes(source, sizes[self._rank], "the input")
        even = sizes.count(source.nbytes) == self._size
        if not even and kind is Kind.GATHER:
            raise InputError(f"gather into tensors of {sizes} bytes; all must be as large as the input.")
        for number, one in enumerate(targets):
            source = apart(source, one.dense, allowed=0 if number == self._rank else None)
        blocks = source.nbytes if even else sizes
        prepared = self._calls.prepare(kind, blocks, source.dtype, root=how.root)
        return self._calls.issue(
            prepared,
            inputs=(source.data_ptr(),),
            outputs=[one.dense.data_ptr() for one in targets],
            targets=targets,
            result=outputs,
            is_async=how.is_async,
            keep=source,
        )

    def all_gather_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 (PyTorch's name)
        opts: Any = None,
    ) -> dist.Work:
        """Every rank's tensor to all ranks, one after the other in one tensor."""
        source, target = readable(input), Target(output, filled=False)
        dense, nbytes = target.dense, source.nbytes
        require_same_dtype(source, dense)
        require_nbytes(dense, nbytes * self._size, "the output")
        source = apart(source, dense, allowed=self._rank * nbytes)
        return self._calls.issue(
            self._calls.prepare(Kind.ALL_GATHER, nbytes, source.dtype),
            inputs=(source.data_ptr(),),
            outputs=addresses_of(dense, nbytes, self._size),
            targets=(target,),
            result=[output],
            is_async=asked(opts).is_async,
            keep=source,
        )

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        """As `all_gather_single`, of several tensors."""
        pairs = zip(outputs, inputs, strict=True)
        works = [self.all_gather_single(output, given, opts) for output, given in pairs]
        return works[-1] if works else Finished([])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        """As `allgather`, of several tensors: ``outputs[rank][number]``."""
        how = asked(opts)
        works = [
            self._gather(Kind.ALL_GATHER, [of_rank[number] for of_rank in outputs], one, how)
            for number, one in enumerate(inputs)
        ]
        return works[-1] if works else Finished([])

    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, *, op: Any = None
    ) -> dist.Work:
        """Reduce one tensor for each rank over all ranks; each gets its own. They may differ in size."""
        del timeout
        how, output = asked(opts, op=op), only(outputs)
        given = only_list(inputs)
        self._require_count(given, "inputs")
        require_same_dtype(output, *given)
        target = Target(output, filled=False)
        sources = self._apart(given, target.dense)
        sizes = tuple(one.nbytes for one in sources)
        require_nbytes(output, sizes[self._rank], "the output")
        even = sizes.count(output.nbytes) == self._size
        return self._calls.issue(
            self._calls.prepare(
                Kind.REDUCE_SCATTER,
                output.nbytes if even else sizes,
                output.dtype,
                reduction=how.reduction,
            ),
            inputs=[one.data_ptr() for one in sources],
            outputs=(target.dense.data_ptr(),),
            targets=(target,),
            result=[output],
            is_async=how.is_async,
            keep=sources,
        )

    def reduce_scatter_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002
        opts: Any = None,
    ) -> dist.Work:
        """Reduce one tensor over all ranks; each gets its share, one after the other."""
        how = asked(opts)
        source, target = readable(input), Target(output, filled=False)
        dense, nbytes = target.dense, output.nbytes
        require_same_dtype(source, dense)
        require_nbytes(source, nbytes * self._size, "the input")
        source = apart(source, dense, allowed=-self._rank * nbytes)
        return self._calls.issue(
            self._calls.prepare(Kind.REDUCE_SCATTER, nbytes, source.dtype, reduction=how.reduction),
            inputs=addresses_of(source, nbytes, self._size),
            outputs=(dense.data_ptr(),),
            targets=(target,),
            result=[output],
            is_async=how.is_async,
            keep=source,
        )

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> dist.Work:
        """As `reduce_scatter_single`, of several tensors."""
        pairs = zip(outputs, inputs, strict=True)
        works = [self.reduce_scatter_single(output, given, opts) for output, given in pairs]
        return works[-1] if works else Finished([])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, *, root: int = 0
    ) -> dist.Work:
        """One tensor of the root's to each rank; all are equally large."""
        del timeout
        how, output = asked(opts, root=root), only(outputs)
        target = Target(output, filled=False)
        sources: Tensors = []
        if self._rank == how.root:
            given = only_list(inputs)
            self._require_count(given, "inputs")
            require_same_dtype(output, *given)
            sources = self._apart(given, target.dense)
            for one in sources:
                require_nbytes(one, output.nbytes, "each input")
        return self._calls.issue(
            self._calls.prepare(Kind.SCATTER, output.nbytes, output.dtype, root=how.root),
            inputs=[one.data_ptr() for one in sources],
            outputs=(target.dense.data_ptr(),),
            targets=(target,),
            result=[output],
            is_async=how.is_async,
            keep=sources,
        )

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> dist.Work:
        """Rows for each rank to that rank: so many as the splits say, equally many without splits."""
        how = asked(opts)
        source, target = readable(input), Target(output, filled=False)
        dense = target.dense
        require_same_dtype(source, dense)
        source = apart(source, dense)
        given = rows_nbytes(source, input_split_sizes, self._size, "input")
        got = rows_nbytes(dense, output_split_sizes, self._size, "output")
        starts, ends = addresses_of(source, given), addresses_of(dense, got)
        if output_split_sizes or input_split_sizes:
            return self._exchange(given, got, starts, ends, [target], [output], how, keep=source)
        require_nbytes(dense, source.nbytes, "the output")
        return self._calls.issue(
            self._calls.prepare(Kind.ALL_TO_ALL, given[0], source.dtype),
            inputs=starts,
            outputs=ends,
            targets=(target,),
            result=[output],
            is_async=how.is_async,
            keep=source,
        )

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None, timeout: Any = None) -> dist.Work:
        """A tensor for each rank to that rank; they may differ in size."""
        del timeout
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
            asked(opts),
            keep=sources,
        )

    def _exchange(  # noqa: PLR0917 (both sides' sizes and addresses)
        self,
        given: Sequence[int],
        got: Sequence[int],
        starts: list[int],
        ends: list[int],
        targets: list[Target],
        outputs: Tensors,
        how: Asked,
        *,
        keep: Any,
    ) -> dist.Work:
        """all_to_all of blocks of which each rank knows its own sizes: tell each other, then move them."""
        calls, transport, count = self._calls, self._calls.transport, self._size
        mine = torch.tensor(given, dtype=torch.int64)
        everyones = torch.empty((count, count), dtype=torch.int64)
        dtype = outputs[0].dtype

        def run() -> None:
            transport.run(
                calls.prepare(Kind.ALL_GATHER, mine.nbytes, mine.dtype),
                inputs=(mine.data_ptr(),),
                outputs=addresses_of(everyones, mine.nbytes, count),
            )
            sizes = everyones.tolist()
            sent = [row[self._rank] for row in sizes]
            if sent != list(got):
                transport.disagree(
                    f"all_to_all: rank {self._rank} expects {list(got)} bytes from ranks 0 to {count - 1},"
                    f" which send it {sent}"
                )
            blocks = tuple(size for row in sizes for size in row)
            transport.run(calls.prepare(Kind.ALL_TO_ALL, blocks, dtype), inputs=starts, outputs=ends)

        return calls.start(
            run, targets=targets, result=outputs, is_async=how.is_async, keep=(keep, mine, everyones)
        )

    def barrier(self, opts: Any = None, timeout: Any = None) -> dist.Work:
        """Wait until all ranks have come here."""
        del timeout
        return self._calls.issue(
            self._calls.prepare(Kind.BARRIER, (0,), torch.uint8),
            inputs=(),
            outputs=(),
            targets=(),
            result=[],
            is_async=asked(opts).is_async,
        )

    def _require_count(self, tensors: Tensors, what: str) -> None:
        if len(tensors) != self._size:
            raise InputError(f"{len(tensors)} {what}; a group of {self._size} ranks needs {self._size}.")

    def _apart(self, tensors: Tensors, target: torch.Tensor) -> Tensors:
        """Tensors for each rank, safe to read while the target is written; its own may be the target."""
        return [
            apart(readable(one), target, allowed=0 if number == self._rank else None)
            for number, one in enumerate(tensors)
        ]
