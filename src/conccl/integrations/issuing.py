"""Issues calls to a transport: made ready once, carried out in the caller's thread or in the group's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from conccl.collectives.layout import Place
from conccl.core.errors import ExecutionError
from conccl.core.ops import CollectiveKind as Kind
from conccl.integrations.tensors import Target, dtype_name, finisher
from conccl.integrations.work import CallQueue, Finished, Tensors
from conccl.transports.calls import Call
from conccl.transports.carrier import Prepared
from conccl.transports.host import HostTransport

_MOST_PREPARED = 4096
"""Calls that are kept ready; a program that has more kinds and sizes of calls makes them anew."""

_IN_PLACE = frozenset({Kind.ALL_REDUCE, Kind.REDUCE, Kind.BROADCAST})
"""torch.distributed has these in place."""


class Issuer:
    """All calls of one group, in order.

    A call that is not asynchronous is carried out at once in the caller's thread, unless calls that were
    issued before it are still in the group's queue.
    """

    def __init__(self, transport: HostTransport, /, *, algorithms: Mapping[str, str]) -> None:
        self.transport = transport
        self.count = transport.count
        self._algorithms = algorithms
        self._queue = CallQueue("conccl-calls")
        self._made: dict[Any, Prepared] = {}
        self._closed = False

    def prepare(
        self,
        kind: Kind,
        sizes: int | tuple[int, ...],
        dtype: torch.dtype,
        /,
        *,
        root: int = 0,
        reduction: str = "",
    ) -> Prepared:
        """A call made ready. ``sizes``: bytes of each block, or of every block, or of a whole message."""
        key = (kind, sizes, dtype, root, reduction)
        found = self._made.get(key)
        if found is not None:
            return found
        self.require_open()
        blocks = sizes
        if isinstance(blocks, int):
            blocks = (blocks,) * (self.count**2 if kind is Kind.ALL_TO_ALL else self.count)
        call = Call(
            kind=kind,
            sizes=blocks,
            dtype=dtype_name(dtype),
            root=root,
            reduction=reduction,
            place=Place.IN_PLACE if kind in _IN_PLACE else Place.OUT_OF_PLACE,
            algorithm=self._algorithms.get(kind),
        )
        if len(self._made) >= _MOST_PREPARED:
            self._made.clear()
        found = self._made[key] = self.transport.prepare(call)
        return found

    def issue(
        self,
        prepared: Prepared,
        /,
        *,
        inputs: Sequence[int],
        outputs: Sequence[int],
        targets: Sequence[Target],
        result: Tensors,
        is_async: bool,
        keep: Any = None,
    ) -> dist.Work:
        """Carry out a call on blocks at these addresses. ``keep`` lives until it is complete."""
        if not is_async and self._queue.is_idle:
            self.transport.run(prepared, inputs=inputs, outputs=outputs)
            for one in targets:
                one.finish()
            return Finished(result)
        run = partial(self.transport.run, prepared, inputs=inputs, outputs=outputs)
        return self.start(run, targets=targets, result=result, is_async=is_async, keep=keep)

    def start(
        self,
        run: Callable[[], None],
        /,
        *,
        targets: Sequence[Target],
        result: Tensors,
        is_async: bool,
        keep: Any,
    ) -> dist.Work:
        """Carry out something that makes calls, in its turn."""
        self.require_open()
        finish = finisher(targets)

        def all_of_it(keep: Any = (keep, targets)) -> None:
            del keep
            run()
            if finish is not None:
                finish()

        if not is_async and self._queue.is_idle:
            all_of_it()
            return Finished(result)
        work = self._queue.put(all_of_it, result)
        if not is_async:
            work.wait()
        return work

    def fence(self) -> dist.Work:
        """A work that is complete when all calls issued so far are."""
        return Finished([]) if self._queue.is_idle else self._queue.put(lambda: None, [])

    def require_open(self) -> None:
        """Refuse calls of a group that has been left."""
        if self._closed:
            raise ExecutionError(f"group {self.transport.name()!r} has been destroyed. Make a new one.")

    def close(self) -> None:
        """Carry out what has been issued, and take no more."""
        self._closed = True
        self._queue.close()
        self._made.clear()
