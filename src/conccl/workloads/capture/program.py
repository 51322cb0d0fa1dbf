"""The program that is being recorded: streams, events and host calls, in the order of the host."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from conccl.core.hardware import Device
from conccl.workloads.captured import Captured, HostCall, Kernel, KernelCall, Phase

DEFAULT_STREAM = "stream 0"


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on a stream, behind its kernel calls and what it waits for: what an event is."""

    stream: str
    kernels: tuple[int, ...]
    behind: tuple[str, ...]
    """Streams on which nothing is yet in this recording: what the one before put there."""
    recording: int
    """Which recording it belongs to; in a later one it is in the past."""


class HostWait(enum.Enum):
    """What the host waits for once it has launched a call's kernels."""

    NOTHING = enum.auto()
    STREAM = enum.auto()
    """The kernels of the call's stream: a copy to the host."""
    DEVICE = enum.auto()
    """The kernels of all streams: synchronize()."""


@dataclass(slots=True)
class Program:
    """Grows while code runs; `captured` is what it came to."""

    device: Device
    """The GPU that is presented."""
    kernels: list[KernelCall] = field(default_factory=list)
    calls: list[HostCall] = field(default_factory=list)
    warnings: dict[str, None] = field(default_factory=dict)
    """Each said once, in order."""
    stream: str = DEFAULT_STREAM
    phase: Phase = Phase.PYTHON
    python_calls: int = 0
    """Python functions of the program and of PyTorch entered since the last host call."""
    default_device: Any = None
    """What the program gave torch.set_default_device."""
    depth: int = 0
    """Above 0 while an op is being recorded: what runs then is not the program's."""
    last_on: dict[str, int] = field(default_factory=dict)
    """Stream -> its last kernel call."""
    pending: dict[str, set[int]] = field(default_factory=dict)
    """Stream -> kernel calls of other streams that its next kernel waits for."""
    pending_behind: dict[str, set[str]] = field(default_factory=dict)
    """Stream -> streams of the recording before that its next kernel waits for."""
    streams: int = 1
    recording: int = 0
    """Counts how often `clear` was called."""

    def launch(
        self,
        name: str,
        kernels: Iterable[Kernel] = (),
        *,
        stream: str | None = None,
        cached: float = 0.0,
        wait: HostWait = HostWait.NOTHING,
    ) -> None:
        """Note a host call and the kernels that it puts on a stream."""
        first = len(self.kernels)
        lane = self.stream if stream is None else stream
        for kernel in kernels:
            after = tuple(sorted(self.pending.pop(lane, ())))
            behind = tuple(sorted(self.pending_behind.pop(lane, ())))
            self.last_on[lane] = len(self.kernels)
            self.kernels.append(
                KernelCall(kernel=kernel, lane=lane, after=after, behind=behind, cached=cached)
            )
        self._call(name, first=first, waits_for=self._awaited(wait, lane))

    def wait_on_host(self, name: str, mark: Mark | None, /) -> None:
        """Note that the host waits for what was marked: event.synchronize()."""
        awaited = mark.kernels if mark is not None and mark.recording == self.recording else ()
        self._call(name, first=len(self.kernels), waits_for=awaited)

    def _call(self, name: str, *, first: int, waits_for: tuple[int, ...]) -> None:
        self.calls.append(
            HostCall(
                name=name,
                phase=self.phase,
                first=first,
                count=len(self.kernels) - first,
                python_calls=self.python_calls,
                waits_for=waits_for,
            )
        )
        self.python_calls = 0

    def _awaited(self, wait: HostWait, lane: str) -> tuple[int, ...]:
        if wait is HostWait.NOTHING:
            return ()
        if wait is HostWait.DEVICE:
            return tuple(sorted(self.last_on.values()))
        return (self.last_on[lane],) if lane in self.last_on else ()

    def set_aside(self) -> tuple[Any, ...]:
        """Record into empty lists from here on; `take_back` undoes it."""
        aside = (self.kernels, self.calls, self.last_on, self.pending, self.pending_behind)
        self.kernels, self.calls, self.last_on, self.pending, self.pending_behind = [], [], {}, {}, {}
        self.recording += 1
        return aside

    def take_back(self, aside: tuple[Any, ...], /) -> tuple[KernelCall, ...]:
        """Go on where recording was set aside; the kernels of meanwhile."""
        kernels = tuple(self.kernels)
        self.kernels, self.calls, self.last_on, self.pending, self.pending_behind = aside
        return kernels

    def replay(self, kernels: Sequence[KernelCall], *, origin: str) -> None:
        """Launch recorded kernels at once; those of the stream ``origin`` go to the current one."""
        first = len(self.kernels)
        begun: set[str] = set()
        before = self.last_on.get(self.stream)
        for call in kernels:
            lane = self.stream if call.lane == origin else call.lane
            after = {first + index for index in call.after} | self.pending.pop(lane, set())
            if lane not in begun and lane != self.stream and before is not None:
                after.add(before)
            begun.add(lane)
            self.last_on[lane] = len(self.kernels)
            self.kernels.append(replace(call, lane=lane, after=tuple(sorted(after)), behind=()))
        self.phase = Phase.REPLAY
        self._call("replay", first=first, waits_for=())

    def new_stream(self) -> str:
        """A stream that no one has yet."""
        name = f"stream {self.streams}"
        self.streams += 1
        return name

    def mark(self, stream: str, /) -> Mark:
        """The place behind what is on the stream now."""
        kernels, behind = set(self.pending.get(stream, ())), set(self.pending_behind.get(stream, ()))
        if stream in self.last_on:
            kernels.add(self.last_on[stream])
        else:
            behind.add(stream)
        return Mark(stream, tuple(sorted(kernels)), tuple(sorted(behind)), self.recording)

    def wait_for(self, mark: Mark | None, *, stream: str) -> None:
        """What comes next on this stream waits for what was marked."""
        if mark is None:
            return
        earlier = mark.behind if mark.recording == self.recording else (mark.stream,)
        before = [other for other in earlier if other != stream]
        if before:
            self.pending_behind.setdefault(stream, set()).update(before)
        if mark.recording != self.recording:
            return
        others = [kernel for kernel in mark.kernels if self.kernels[kernel].lane != stream]
        if others:
            self.pending.setdefault(stream, set()).update(others)

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
        self.pending_behind.clear()
        self.python_calls = 0
        self.recording += 1

    def captured(self) -> Captured:
        """What has been recorded so far."""
        return Captured(kernels=tuple(self.kernels), calls=tuple(self.calls), warnings=tuple(self.warnings))
