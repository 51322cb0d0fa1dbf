"""Collects what a trace says of the host: launches, labels, and the operators that record their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from conccl.traces.columns import Columns, Table, integers
from conccl.traces.events import (
    Event,
    LaunchArguments,
    OpArguments,
    decode_each,
    decode_launch_arguments,
    decode_op_arguments,
)
from conccl.traces.times import event_times, to_ns

STEP_PREFIX = "ProfilerStep"
COMMUNICATION_PREFIXES = ("nccl:", "c10d::", "record_param_comms", "gloo:", "mpi:", "ucc:", "xccl:", "rccl:")
"""Labels that PyTorch's process groups put around their calls."""

_KEPT_OPS = (STEP_PREFIX, *COMMUNICATION_PREFIXES)


class HostRows:
    """Launches, labels and shaped operators as they stand in the file, in columns.

    The column ``thread`` numbers (process, thread) in ``threads``, ``name`` labels in ``names``, ``shapes``
    texts of an operator's input shapes, ``details`` that of a communication label's arguments.
    """

    def __init__(self) -> None:
        self.threads = Table()
        self.names = Table()
        self.shapes = Table()
        self.details = Table()
        self.launches = Columns()
        self.labels = Columns()
        self.ops = Columns()

    def append_launches(self, events: Sequence[Event], /) -> None:
        """Calls of the CUDA or HIP runtime."""
        arguments = decode_each([event.args for event in events], decode_launch_arguments, LaunchArguments)
        times, good = to_ns([event.ts for event in events])
        self.launches.append(
            correlation=integers([call.correlation for call in arguments], default=-1),
            time_ns=times,
            good=good,
            thread=self._threads(events),
            is_graph=np.array(["GraphLaunch" in event.name for event in events], dtype=np.bool_),
        )

    def append_labels(self, events: Sequence[Event], /, *, on_gpu: bool) -> None:
        """User annotations, on the host or their shadow on the GPU."""
        times = event_times([event.ts for event in events], [event.dur for event in events])
        self.labels.append(
            name=np.array([self.names.number(event.name) for event in events], dtype=np.int32),
            start_ns=times.start_ns,
            duration_ns=times.duration_ns,
            good=times.good,
            thread=self._threads(events),
            on_gpu=np.full(len(events), on_gpu),
            details=np.array([self._details(event) for event in events], dtype=np.int32),
        )

    def append_ops(self, events: Sequence[Event], /, *, with_shapes: bool) -> None:
        """Host operators: steps and communication among them are labels; the rest matters for its shapes."""
        if labels := [event for event in events if event.name.startswith(_KEPT_OPS)]:
            self.append_labels(labels, on_gpu=False)
        if not with_shapes:
            return
        times = event_times([event.ts for event in events], [event.dur for event in events])
        arguments = decode_each([event.args for event in events], decode_op_arguments, OpArguments)
        self.ops.append(
            start_ns=times.start_ns,
            duration_ns=times.duration_ns,
            good=times.good,
            thread=self._threads(events),
            shapes=np.array([self.shapes.number(bytes(op.input_dims)) for op in arguments], dtype=np.int32),
        )

    def _threads(self, events: Sequence[Event]) -> np.ndarray[Any, np.dtype[np.int32]]:
        number = self.threads.number
        return np.array([number((_key(event.pid), _key(event.tid))) for event in events], dtype=np.int32)

    def _details(self, event: Event) -> int:
        """Arguments are kept of communication only."""
        return self.details.number(bytes(event.args)) if event.name.startswith(COMMUNICATION_PREFIXES) else -1


def _key(value: Any) -> Any:
    """A process or thread as a table's key; old traces give the same one now as text, now as number."""
    if isinstance(value, int):
        return value
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 20 else text
