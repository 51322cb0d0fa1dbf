"""The driver on a real GPU: PyTorch's streams and events, green contexts, and the kernels of kernels.cu."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from conccl.core.errors import InputError, WaitTimeoutError
from conccl.core.hardware import Device
from conccl.core.kinds import Memory
from conccl.core.ops import Collective, Copy, Move
from conccl.core.plan import Engine, Side, Task
from conccl.gpu import work as ops
from conccl.gpu.driver import Evidence
from conccl.gpu.probes.copies import SMALL, bypasses
from conccl.gpu.program import Launch, Program, StreamKey
from conccl.gpu.toolkit import launch as launch_kernel
from conccl.gpu.toolkit import split_streams
from conccl.gpu.work import CopyKernelWork, Work, work_of

HOLD_NS = 200_000_000
"""How long streams are held back at most while the host fills them."""

AWAIT_NS = 200_000
"""How long a GEMM waits for the CTAs of communication that was launched first, at most."""

POLL_S = 0.0005

Binding = Callable[[Task], None]
"""Code of the user's that puts a task's work into the current stream."""

_PATHS: dict[tuple[Memory, Memory], bool] = {}
"""Copy paths that were put through the occupancy test in this process, and whether they passed."""


class CudaDriver:
    """One process, one GPU; ranks are virtual. ``bindings`` are callables that stand for tasks' ops."""

    def __init__(self, *, device: Device, bindings: Mapping[str, Binding] | None = None) -> None:
        self._device = device
        self._bindings = bindings or {}
        self._streams: dict[StreamKey, Any] = {}
        self._works: dict[str, Work] = {}
        self._partition_sms: dict[str, frozenset[int]] = {}
        self._first_compute: dict[str, CopyKernelWork | None] = {}
        self._stamps: dict[str, torch.Tensor] = {}
        self._gate = torch.cuda.Stream()
        self._release = torch.zeros(1, dtype=torch.int32, device=ops.WHERE)
        self._held = torch.zeros(2, dtype=torch.int32, device=ops.WHERE)
        self._open = torch.ones(1, dtype=torch.int32, pin_memory=ops.WHERE == "cuda")
        self._side = torch.cuda.Stream()
        self._without_sms: dict[str, bool] = {}

    def prepare(self, program: Program, /) -> None:
        """Buffers, streams, and what proofs need to know beforehand."""
        tasks = [one.task for one in program.launches if one.is_first]
        self._works = {
            task.id: work_of(task, self._device) for task in tasks if task.id not in self._bindings
        }
        self._streams = self._made_streams(program)
        by_kernel = [
            work
            for task in tasks
            if task.side is Side.COMMUNICATION
            and task.priority < 0
            and isinstance(work := self._works.get(task.id), CopyKernelWork)
        ]
        first = by_kernel[0] if by_kernel else None
        ready = {task.id for task in tasks if task.side is Side.COMPUTE and not task.after}
        self._first_compute = dict.fromkeys(ready, first) if first is not None else {}
        self._stamps = {
            id_: torch.zeros(1, dtype=torch.int64, device=ops.WHERE) for id_ in self._first_compute
        }
        self._without_sms = {
            task.id: self._passes(task)
            for task in tasks
            if task.side is Side.COMMUNICATION and task.engine is Engine.COPY_ENGINE
        }
        torch.cuda.synchronize()

    def event(self) -> Any:
        """A timing event."""
        return torch.cuda.Event(enable_timing=True)

    def begin(self) -> Any:
        """Hold the gate's stream; all others wait for the event behind it."""
        for work in self._works.values():
            work.next_turn()
            if isinstance(work, CopyKernelWork):
                work.reset()
        self._release.zero_()
        torch.cuda.synchronize()
        pointers = (self._release.data_ptr(), HOLD_NS, self._held[0:].data_ptr(), self._held[1:].data_ptr())
        launch_kernel("conccl_hold", *pointers, grid=1, block=1, stream=self._gate.cuda_stream)
        origin = self.event()
        origin.record(self._gate)
        for stream in self._streams.values():
            stream.wait_event(origin)
        return origin

    def release(self) -> None:
        """By a host copy, which needs no SM; the hold ends by itself in time anyway."""
        with torch.cuda.stream(self._side):
            self._release.copy_(self._open, non_blocking=True)

    def record(self, event: Any, stream: StreamKey, /) -> None:
        """In the key's stream."""
        event.record(self._streams[stream])

    def wait(self, stream: StreamKey, event: Any, /) -> None:
        """In the key's stream."""
        self._streams[stream].wait_event(event)

    def launch(self, launch: Launch, /) -> None:
        """A part of the task's work, or the user's binding."""
        stream = self._streams[launch.stream]
        with torch.cuda.stream(stream):
            if launch.is_first:
                self._await_communication(launch.task, stream)
            binding = self._bindings.get(launch.task.id)
            if binding is None:
                self._works[launch.task.id].launch(launch.part, launch.parts)
            elif launch.parts > 1:
                raise InputError(f"task {launch.task.id!r} has parts, and a binding runs as a whole.")
            else:
                binding(launch.task)

    def _await_communication(self, task: Task, stream: Any) -> None:
        """Before the first GEMM: until CTAs that were launched before it are resident, and when that is."""
        first = self._first_compute.get(task.id)
        if first is not None:
            stamp = self._stamps[task.id]
            pointers = (first.started.data_ptr(), first.ctas, AWAIT_NS, stamp.data_ptr())
            launch_kernel("conccl_await", *pointers, grid=1, block=1, stream=stream.cuda_stream)

    def finish(self, *, seconds: float) -> None:
        """Poll, so that a wait that never ends is an error and not a hang."""
        until = time.monotonic() + seconds
        waiting = dict(self._streams)
        while waiting:
            waiting = {key: stream for key, stream in waiting.items() if not stream.query()}
            if waiting and time.monotonic() > until:
                names = ", ".join(f"rank {key.rank} lane {key.lane}" for key in waiting)
                raise WaitTimeoutError(f"not done after {seconds:.0f} s: {names}.")
            if waiting:
                time.sleep(POLL_S)
        torch.cuda.synchronize()

    def elapsed_ns(self, begin: Any, end: Any, /) -> int:
        """By the GPU's clock; events resolve about half a microsecond."""
        return round(float(begin.elapsed_time(end)) * 1e6)

    def evidence(self) -> Evidence:
        """What kernels noted in the last run."""
        kernels = {id_: work for id_, work in self._works.items() if isinstance(work, CopyKernelWork)}
        return Evidence(
            started_ns={id_: (int(one.times[0]), int(one.times[1])) for id_, one in kernels.items()},
            compute_from_ns={id_: int(stamp) for id_, stamp in self._stamps.items()},
            partition_sms=self._partition_sms,
            without_sms=self._without_sms,
        )

    def wrong(self) -> str:
        """The first task whose results are wrong."""
        for id_, work in self._works.items():
            what = work.wrong()
            if what:
                return f"{id_}: {what}"
        return ""

    # Streams

    def _made_streams(self, program: Program) -> dict[StreamKey, Any]:
        """A stream for every key: in a partition, on fewer SMs, or plain with its priority."""
        groups = self._groups(program)
        made = {}
        for key in program.streams:
            group = key.partition if key.partition is not None else self._fewer(key)
            if group is None:
                made[key] = torch.cuda.Stream(priority=key.priority)
            else:
                made[key] = torch.cuda.ExternalStream(groups[group])
        return made

    def _fewer(self, key: StreamKey) -> str | None:
        """The name of the group for a limit on SMs; None where there is none."""
        if key.sms is None or key.sms >= self._device.sm_count:
            return None
        return f"{key.sms} SMs"

    def _groups(self, program: Program) -> dict[str, int]:
        """Streams in groups of SMs, all from one split, and the SMs that each was seen on."""
        named = dict(program.partitions)
        limits = {name: key.sms for key in program.streams if (name := self._fewer(key)) and key.sms}
        if named and limits:
            raise InputError(
                "a plan with partitions and with limits on SMs; the GPU executor splits SMs once."
            )
        if len(named) > 2 or len(limits) > 1:
            raise InputError("the GPU executor splits SMs into two groups; this plan asks for more.")
        found: dict[str, int] = {}
        if limits:
            ((name, sms),) = limits.items()
            group = max(self._device.sm_group, sms // self._device.sm_group * self._device.sm_group)
            found[name] = split_streams(group)[0][0]
        elif named:
            smaller = min(named, key=lambda name: named[name])
            priorities = [
                min((k.priority for k in program.streams if k.partition == n), default=0) for n in named
            ]
            order = sorted(named, key=lambda name: name != smaller)
            by_name = dict(zip(named, priorities, strict=True))
            streams = split_streams(named[smaller], priorities=(by_name[order[0]], by_name[order[-1]]))
            found = {name: stream for name, (stream, _) in zip(order, streams, strict=False)}
        self._partition_sms = {name: self._seen(stream) for name, stream in found.items()}
        return found

    def _seen(self, stream: int) -> frozenset[int]:
        """SMs that CTAs of a kernel in this stream ran on, as many CTAs as there are SMs."""
        count = 4 * self._device.sm_count
        ids = torch.full((count,), -1, dtype=torch.int32, device=ops.WHERE)
        free, started = torch.zeros(2, dtype=torch.int32, device=ops.WHERE).split(1)
        torch.cuda.synchronize()
        pointers = (free.data_ptr(), 100_000, ids.data_ptr(), started.data_ptr())
        launch_kernel("conccl_hold", *pointers, grid=count, block=1024, stream=stream)
        torch.cuda.synchronize()
        return frozenset(set(ids.tolist()) - {-1})

    def _passes(self, task: Task) -> bool:
        """Whether this very path passes the occupancy test; each is tried once in a process."""
        op = task.op
        if isinstance(op, (Collective, Move)):
            path = (Memory.DEVICE, Memory.DEVICE)
        elif isinstance(op, Copy):
            path = (op.source, op.destination)
        else:
            return True  # nothing is copied
        if path not in _PATHS:
            small = Copy(nbytes=SMALL, source=path[0], destination=path[1])
            work = work_of(dataclasses.replace(task, op=small), self._device)
            _PATHS[path] = bypasses(lambda _: work.launch(0, 1))
        return _PATHS[path]
