"""The seam to the device: what the executor needs of CUDA, and what it gets back as evidence.

`cuda_driver` is the real one; tests have one that keeps time by itself and notes every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from conccl.gpu.program import Launch, Program, StreamKey

Handle = Any
"""A stream or an event, as the driver has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was seen of one run, beside its times. Times by the GPU's global timer, in ns."""

    started_ns: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Communication task by a kernel -> when its first and its last CTA started."""
    compute_from_ns: Mapping[str, int] = field(default_factory=dict)
    """Compute task -> a moment just before its first kernel."""
    partition_sms: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Partition -> SMs that a kernel in it was seen on."""
    without_sms: Mapping[str, bool] = field(default_factory=dict)
    """Communication task by a copy engine -> whether its path passed the occupancy test here."""


class Driver(Protocol):
    """One GPU, or several as one process sees them."""

    def prepare(self, program: Program, /) -> None:
        """Allocate and fill what the program's tasks need, and make its streams; nothing is run yet."""
        ...

    def event(self) -> Handle:
        """A new event that keeps the time."""
        ...

    def begin(self) -> Handle:
        """Hold all streams back until `release`, and return the event from which times count."""
        ...

    def release(self) -> None:
        """Let the streams go: everything is enqueued."""
        ...

    def record(self, event: Handle, stream: StreamKey, /) -> None:
        """The event happens when all that was put into the stream so far is done."""
        ...

    def wait(self, stream: StreamKey, event: Handle, /) -> None:
        """What is put into the stream from now on begins after the event."""
        ...

    def launch(self, launch: Launch, /) -> None:
        """Put a step's work into its stream."""
        ...

    def finish(self, *, seconds: float) -> None:
        """Wait for everything; `WaitTimeoutError` after so many seconds."""
        ...

    def elapsed_ns(self, begin: Handle, end: Handle, /) -> int:
        """Time between two events that have happened."""
        ...

    def evidence(self) -> Evidence:
        """What was seen of the last run."""
        ...

    def wrong(self) -> str:
        """What is wrong with the last run's results; empty where they are right."""
        ...
