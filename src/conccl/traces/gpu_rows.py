"""Collects the GPU rows of a trace batch by batch into columns, and the tables that they index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from conccl.traces.columns import Columns, Numbers, Table, integers
from conccl.traces.described import Described
from conccl.traces.events import GPU_WORK, Batch, Category, GpuArguments, GpuEvent
from conccl.traces.rules import RowKind
from conccl.traces.times import event_times

_ROW_KINDS = {
    Category.KERNEL: RowKind.KERNEL,
    Category.MEMCPY: RowKind.MEMCPY,
    Category.MEMSET: RowKind.MEMSET,
}

_NO_ARGUMENTS = GpuArguments()


class GpuRows:
    """GPU rows as they stand in the file, in columns.

    The column ``name`` numbers the names of a row's ``kind``, ``lane`` (device, stream, process, thread),
    ``launch`` (kind, name, grid, block), ``metadata`` what a row's arguments say of a collective.
    """

    def __init__(self) -> None:
        self.columns = Columns()
        self.names = {kind: Table() for kind in RowKind}
        self.lanes = Table()
        self.launches = Table()
        self.metadata = Table()

    def append(self, batch: Batch, /) -> None:
        """The GPU work of one batch."""
        for category in GPU_WORK:
            if category in batch:
                self._append(batch[category], _ROW_KINDS[category])

    @property
    def all_names(self) -> list[tuple[str, RowKind]]:
        """The names of all kinds in one list, with their kinds."""
        return [(name, kind) for kind in RowKind for name in self.names[kind]]

    @property
    def lack_correlations(self) -> bool:
        """Whether no row says which launch is its own."""
        return not np.any(self.columns.array("correlation", dtype=np.int64) > 0)

    def name_numbers(self) -> Numbers:
        """The column ``name`` as indices into `all_names`."""
        before = np.cumsum([0, *(len(self.names[kind]) for kind in RowKind)])
        kinds = self.columns.array("kind", dtype=np.int8)
        return (before[kinds] + self.columns.array("name", dtype=np.int32)).astype(np.int32)

    def streams(self) -> tuple[list[tuple[str, str]], Numbers]:
        """(device, stream) pairs, and the column ``lane`` as indices into them.

        Where the profiler numbered no stream, it is the process and thread that it drew the row under.
        """
        pairs = Table()
        numbers = np.array([pairs[_pair(*lane)] for lane in self.lanes], dtype=np.int32)
        return list(pairs), numbers[self.columns.array("lane", dtype=np.int32)]

    def _append(self, events: Sequence[GpuEvent], kind: RowKind) -> None:
        arguments = [event.args or _NO_ARGUMENTS for event in events]
        times = event_times([event.ts for event in events], [event.dur for event in events])
        names = self.names[kind].numbers([event.name for event in events])
        kind_number = list(RowKind).index(kind)
        self.columns.append(
            kind=np.full(len(events), kind_number, dtype=np.int8),
            name=names,
            start_ns=times.start_ns,
            duration_ns=times.duration_ns,
            good=times.good,
            nanoseconds=times.nanoseconds,
            lane=self.lanes.numbers(
                zip(
                    [row.device for row in arguments],
                    [row.stream for row in arguments],
                    [event.pid for event in events],
                    [event.tid for event in events],
                    strict=True,
                )
            ),
            correlation=integers([row.correlation for row in arguments], default=-1),
            nbytes=integers([row.nbytes for row in arguments], default=0),
            launch=self.launches.numbers(
                zip(
                    [kind_number] * len(events),
                    names.tolist(),
                    [tuple(row.grid) if row.grid.__class__ is list else () for row in arguments],
                    [tuple(row.block) if row.block.__class__ is list else () for row in arguments],
                    strict=True,
                )
            ),
            in_graph=integers([row.graph_node for row in arguments], default=0) > 0,
            metadata=self._metadata(arguments),
            between_devices=np.array([row.from_device != row.to_device for row in arguments], dtype=np.bool_),
        )

    def _metadata(self, arguments: Sequence[GpuArguments]) -> Numbers:
        numbers = np.full(len(arguments), -1, dtype=np.int32)
        said = [index for index, row in enumerate(arguments) if row.collective is not None]
        numbers[said] = self.metadata.numbers([_collective(arguments[index]) for index in said])
        return numbers


def _pair(device: Any, stream: Any, process: Any, thread: Any) -> tuple[str, str]:
    """The texts of device and stream."""
    return (
        str(process if device is None else device),
        f"{process}/{thread}" if stream is None or stream == "" else str(stream),
    )


def _collective(row: GpuArguments) -> Described:
    return Described(
        name=row.collective,
        group=row.group,
        group_ranks=tuple(row.group_ranks) if isinstance(row.group_ranks, list) else row.group_ranks,
        group_size=row.group_size,
        sequence=row.sequence,
        dtype=row.dtype,
        in_elements=row.in_elements,
        out_elements=row.out_elements,
    )
