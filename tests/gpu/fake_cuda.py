"""PyTorch's CUDA streams and events, and our kernels, made up on the CPU: the real driver runs on them.

Work runs at once when it is enqueued, so that order and data are checked and times mean nothing. A stream
refuses to wait for an event that was not recorded, and counts what was put into it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools

import torch


class FakeCuda:
    def __init__(self, sms: int = 132):
        self.sms = sms
        self.clock_ns = 1_000
        self.streams: list[FakeStream] = []
        self.current = None
        self.kernels: list[str] = []
        self.numbers = itertools.count(1)
        self.groups: dict[int, range] = {}

    def tick(self, ns: int = 500) -> int:
        self.clock_ns += ns
        return self.clock_ns

    def install(self, monkeypatch, *modules):
        """Stand in for torch.cuda, kernel launches and splits in these modules."""
        monkeypatch.setattr(torch.cuda, "Stream", lambda priority=0: FakeStream(self, priority))
        monkeypatch.setattr(torch.cuda, "ExternalStream", lambda pointer: FakeStream(self, 0, pointer))
        monkeypatch.setattr(torch.cuda, "Event", lambda **_: FakeEvent(self))
        monkeypatch.setattr(torch.cuda, "stream", self.in_stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self.current)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        for module in modules:
            for name, function in (("launch", self.launch), ("launch_kernel", self.launch)):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, function)
            if hasattr(module, "split_streams"):
                monkeypatch.setattr(module, "split_streams", self.split)
        return self

    @contextlib.contextmanager
    def in_stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    def split(self, sms, /, **_):
        assert sms % 8 == 0
        pointers = (next(self.numbers), next(self.numbers))
        self.groups[pointers[0]] = range(sms)
        self.groups[pointers[1]] = range(sms, self.sms)
        return (pointers[0], sms), (pointers[1], self.sms - sms)

    def launch(self, name, /, *arguments, grid, stream, **_):
        self.kernels.append(name)
        getattr(self, name)(*arguments, grid=grid, stream=stream)

    def conccl_hold(self, _release, _limit_ns, smids, started, *, grid, stream):
        on = self.groups.get(stream, range(self.sms))
        _write(smids, ctypes.c_int32, [on[cta % len(on)] for cta in range(grid)])
        _write(started, ctypes.c_int32, [grid])

    def conccl_copy(self, into, out_of, words, smids, started, times, *, grid, stream):
        ctypes.memmove(into, out_of, 16 * words)
        on = self.groups.get(stream, range(self.sms))
        _write(smids, ctypes.c_int32, [on[cta % len(on)] for cta in range(grid)])
        _write(started, ctypes.c_int32, [grid])
        begin, last = self.tick(), self.tick(50)
        first, latest, _ = (ctypes.c_int64 * 3).from_address(times)
        _write(times, ctypes.c_int64, [min(first, begin), max(latest, last), self.tick()])

    def conccl_await(self, _started, _wanted, _limit_ns, stamp, **_):
        _write(stamp, ctypes.c_int64, [self.tick()])


def _write(address, kind, values):
    (kind * len(values)).from_address(address)[:] = values


class FakeStream:
    def __init__(self, cuda, priority=0, pointer=None):
        self.cuda = cuda
        self.priority = priority
        self.cuda_stream = next(cuda.numbers) if pointer is None else pointer
        cuda.streams.append(self)

    def wait_event(self, event):
        assert event.at_ns is not None, "waits for an event that was not recorded"

    def query(self):
        return True


class FakeEvent:
    def __init__(self, cuda):
        self.cuda = cuda
        self.at_ns = None

    def record(self, _stream=None):
        self.at_ns = self.cuda.tick()

    def elapsed_time(self, other):
        return (other.at_ns - self.at_ns) / 1e6
