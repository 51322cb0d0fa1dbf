"""Collects the GPU rows of a trace batch by batch into columns, and the tables that they index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from conccl.traces.columns import Columns, Table, integers
from conccl.traces.events import Event, GpuArguments, decode_each, decode_gpu_arguments
from conccl.traces.rules import RowKind
from conccl.traces.times import event_times


class GpuRows:
    """GPU rows as they stand in the file, in columns.

    The column ``name`` numbers (name, kind of row) in ``names``, ``lane`` (device, stream) in ``lanes``,
    ``variant`` (name, grid, block) in ``variants``, ``metadata`` the text of a collective's arguments.
    """

    def __init__(self) -> None:
        self.names = Table()
        self.lanes = Table()
        self.variants = Table()
        self.metadata = Table()
        self.columns = Columns()

    def append(self, events: Sequence[Event], kind: RowKind, /) -> None:
        """Rows of one kind."""
        arguments = decode_each([event.args for event in events], decode_gpu_arguments, GpuArguments)
        times = event_times([event.ts for event in events], [event.dur for event in events])
        names = [self.names.number((event.name, kind)) for event in events]
        number = self.variants.number
        self.columns.append(
            name=np.array(names, dtype=np.int32),
            start_ns=times.start_ns,
            duration_ns=times.duration_ns,
            good=times.good,
            nanoseconds=times.nanoseconds,
            lane=np.array(
                [self._lane(event, row) for event, row in zip(events, arguments, strict=True)], dtype=np.int32
            ),
            correlation=integers([row.correlation for row in arguments], default=-1),
            nbytes=integers([row.nbytes for row in arguments], default=0),
            variant=np.array(
                [
                    number((name, bytes(row.grid), bytes(row.block)))
                    for name, row in zip(names, arguments, strict=True)
                ],
                dtype=np.int32,
            ),
            in_graph=integers([row.graph_node for row in arguments], default=0) > 0,
            metadata=np.array(
                [
                    -1 if row.collective is None else self.metadata.number(bytes(event.args))
                    for event, row in zip(events, arguments, strict=True)
                ],
                dtype=np.int32,
            ),
            between_devices=np.array([row.from_device != row.to_device for row in arguments], dtype=np.bool_),
        )

    def _lane(self, event: Event, row: GpuArguments) -> int:
        """The stream; where the profiler numbered none, the process and thread that it drew the row under."""
        device = event.pid if row.device is None else row.device
        stream = f"{event.pid}/{event.tid}" if row.stream is None or row.stream == "" else row.stream
        return self.lanes.number((_text(device), _text(stream)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)
