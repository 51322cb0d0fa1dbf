"""Collects what a trace says of the host: launches, labels, and the operators that record their shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from conccl.traces.columns import Columns, Numbers, Table, integers
from conccl.traces.described import LabelArguments
from conccl.traces.events import Batch, Category, HostEvent, LaunchEvent, OpArguments, TensorArguments
from conccl.traces.operators import KEPT, WITH_VALUES
from conccl.traces.times import event_times

STEP_PREFIX = "ProfilerStep"
COMMUNICATION_PREFIXES = ("nccl:", "c10d::", "record_param_comms", "gloo:", "mpi:", "ucc:", "xccl:", "rccl:")
"""Labels that PyTorch's process groups put around their calls."""

LABELS_AMONG_OPS = (STEP_PREFIX, *COMMUNICATION_PREFIXES)

_PROBED = 64
"""Operators of a batch that are asked whether they record shapes, evenly spread."""


class HostRows:
    """Launches, labels and shaped operators as they stand in the file, in columns.

    The column ``thread`` numbers (process, thread) in ``threads``, ``name`` labels in ``names``, ``shapes``
    texts of an operator's input shapes, ``operator`` what `conccl.traces.operators` reads of it (or -1),
    ``details`` what the arguments of a label around communication say (or -1).
    """

    def __init__(self) -> None:
        self.threads = Table()
        self.names = Table()
        self.shapes = Table()
        self.operators = Table()
        self.details = Table()
        self.launches = Columns()
        self.labels = Columns()
        self.ops = Columns()

    def append(self, batch: Batch, /) -> None:
        """The host's side of one batch."""
        if Category.LAUNCH in batch:
            self._append_launches(batch[Category.LAUNCH])
        if Category.LABEL in batch:
            self._append_labels(batch[Category.LABEL], on_gpu=False)
        if Category.GPU_LABEL in batch:
            self._append_labels(batch[Category.GPU_LABEL], on_gpu=True)
        if Category.OP in batch:
            ops = batch[Category.OP]
            if labels := [event for event in ops if event.name.startswith(LABELS_AMONG_OPS)]:
                self._append_labels(labels, on_gpu=False)
            if any(b'"Input Dims"' in bytes(event.args) for event in ops[:: max(1, len(ops) // _PROBED)]):
                self._append_shapes(ops)

    def thread_numbers(self, columns: Columns, /) -> Numbers:
        """The column ``thread``, one number a thread: old traces give it now as text, now as number."""
        merged = Table()
        numbers = np.array([merged[_thread(*thread)] for thread in self.threads], dtype=np.int32)
        column = columns.array("thread", dtype=np.int32)
        return numbers[column] if len(column) else column

    def _append_launches(self, events: Sequence[LaunchEvent]) -> None:
        times = event_times([event.ts for event in events], None)
        self.launches.append(
            correlation=integers(
                [event.args.correlation if event.args else -1 for event in events], default=-1
            ),
            time_ns=times.start_ns,
            good=times.good,
            thread=self._threads(events),
            is_graph=np.array(["GraphLaunch" in event.name for event in events], dtype=np.bool_),
        )

    def _append_labels(self, events: Sequence[HostEvent], *, on_gpu: bool) -> None:
        times = event_times([event.ts for event in events], [event.dur for event in events])
        self.labels.append(
            name=self.names.numbers([event.name for event in events]),
            start_ns=times.start_ns,
            duration_ns=times.duration_ns,
            good=times.good,
            thread=self._threads(events),
            on_gpu=np.full(len(events), on_gpu),
            details=self._details(events),
        )

    def _append_shapes(self, events: Sequence[HostEvent]) -> None:
        times = event_times([event.ts for event in events], [event.dur for event in events])
        arguments = _arguments([event.args for event in events])
        shapes = self.shapes.numbers([bytes(op.input_dims) for op in arguments])
        self.ops.append(
            start_ns=times.start_ns,
            duration_ns=times.duration_ns,
            good=times.good,
            thread=self._threads(events),
            shapes=shapes,
            operator=self._operators(events, shapes),
        )

    def _operators(self, events: Sequence[HostEvent], shapes: Numbers) -> Numbers:
        """Numbers of name, shapes, types, strides and values; -1 where the operator is none that is kept."""
        numbers = np.full(len(events), -1, dtype=np.int32)
        kept = [index for index, event in enumerate(events) if event.name in KEPT]
        if kept:
            tensors = _tensors([events[index].args for index in kept])
            numbers[kept] = self.operators.numbers(
                (
                    events[index].name,
                    shape,
                    bytes(tensor.input_types),
                    bytes(tensor.input_strides),
                    bytes(tensor.input_values) if events[index].name in WITH_VALUES else b"",
                )
                for index, shape, tensor in zip(kept, shapes[kept].tolist(), tensors, strict=True)
            )
        return numbers

    def _threads(self, events: Sequence[LaunchEvent | HostEvent]) -> Numbers:
        return self.threads.numbers(
            zip([event.pid for event in events], [event.tid for event in events], strict=True)
        )

    def _details(self, events: Sequence[HostEvent]) -> Numbers:
        """Numbers of what labels around communication say; -1 for other labels."""
        numbers = np.full(len(events), -1, dtype=np.int32)
        kept = [index for index, event in enumerate(events) if event.name.startswith(COMMUNICATION_PREFIXES)]
        if kept:
            said = _decoded([events[index].args for index in kept], _decode_labels, LabelArguments)
            numbers[kept] = self.details.numbers(arguments.details for arguments in said)
        return numbers


_decode_arguments = msgspec.json.Decoder(list[OpArguments]).decode
_decode_labels = msgspec.json.Decoder(list[LabelArguments]).decode
_decode_tensors = msgspec.json.Decoder(list[TensorArguments]).decode

Arguments = TypeVar("Arguments", OpArguments, TensorArguments, LabelArguments)


def _arguments(texts: Sequence[bytes]) -> list[OpArguments]:
    return _decoded(texts, _decode_arguments, OpArguments)


def _tensors(texts: Sequence[bytes]) -> list[TensorArguments]:
    return _decoded(texts, _decode_tensors, TensorArguments)


def _decoded(
    texts: Sequence[bytes], decode: Callable[[bytes], list[Arguments]], empty: type[Arguments]
) -> list[Arguments]:
    """The arguments in each text; those that are no fitting object are as if they were empty."""
    try:
        return decode(b"[%b]" % b",".join(texts))
    except (msgspec.MsgspecError, RecursionError):
        return [_one_decoded(text, decode, empty) for text in texts]


def _one_decoded(
    text: bytes, decode: Callable[[bytes], list[Arguments]], empty: type[Arguments]
) -> Arguments:
    try:
        return decode(b"[%b]" % bytes(text))[0]
    except (msgspec.MsgspecError, RecursionError):
        return empty()


def _thread(process: Any, thread: Any) -> tuple[str, str]:
    return str(process), str(thread)
