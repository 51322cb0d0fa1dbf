"""The program that is being recorded: streams, events, host calls, in the order in which the host makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from conccl.workloads.captured import Captured, HostCall, Kernel, KernelCall, Phase

DEFAULT_STREAM = "stream 0"


@dataclass(slots=True)
class Program:
    """Grows while code runs; `captured` is what it came to."""

    kernels: list[KernelCall] = field(default_factory=list)
    calls: list[HostCall] = field(default_factory=list)
    warnings: dict[str, None] = field(default_factory=dict)
    """Each said once, in order."""
    stream: str = DEFAULT_STREAM
    phase: Phase = Phase.PYTHON
    recording: bool = True
    last_on: dict[str, int] = field(default_factory=dict)
    """Stream -> its last kernel call."""
    pending: dict[str, set[int]] = field(default_factory=dict)
    """Stream -> kernel calls of other streams that its next kernel waits for."""
    streams: int = 1

    def launch(
        self, name: str, kernels: Iterable[Kernel], *, stream: str | None = None, waits: bool = False
    ) -> None:
        """Note a host call and the kernels that it puts on a stream."""
        if not self.recording:
            return
        first = len(self.kernels)
        lane = self.stream if stream is None else stream
        for kernel in kernels:
            after = tuple(sorted(self.pending.pop(lane, ())))
            self.last_on[lane] = len(self.kernels)
            self.kernels.append(KernelCall(kernel=kernel, lane=lane, after=after))
        count = len(self.kernels) - first
        self.calls.append(HostCall(name=name, phase=self.phase, first=first, count=count, waits=waits))

    def new_stream(self) -> str:
        """A stream that no one has yet."""
        name = f"stream {self.streams}"
        self.streams += 1
        return name

    def wait_for(self, kernel: int | None, *, stream: str) -> None:
        """What comes next on this stream waits for that kernel call (an event that was recorded behind it)."""
        if kernel is not None and self.kernels[kernel].lane != stream:
            self.pending.setdefault(stream, set()).add(kernel)

    @contextmanager
    def on_stream(self, stream: str) -> Iterator[None]:
        """Kernels go to this stream meanwhile."""
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before

    def warn(self, sentence: str) -> None:
        """Something that the reader of the result should know; said once."""
        self.warnings.setdefault(sentence)

    def clear(self) -> None:
        """Forget what has been recorded; streams stay."""
        self.kernels.clear()
        self.calls.clear()
        self.last_on.clear()
        self.pending.clear()

    def captured(self) -> Captured:
        """What has been recorded so far."""
        return Captured(kernels=tuple(self.kernels), calls=tuple(self.calls), warnings=tuple(self.warnings))
