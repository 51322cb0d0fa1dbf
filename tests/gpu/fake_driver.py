"""A driver without a GPU: streams are clocks, work lasts as long as a test says, every call is noted."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

from conccl.core.errors import WaitTimeoutError
from conccl.gpu.driver import Evidence


@dataclasses.dataclass(eq=False)
class FakeEvent:
    at_ns: int | None = None


class FakeDriver:
    """Streams run their launches one after the other, each ``ns`` long in equal parts; nothing contends."""

    def __init__(self, *, ns=None, evidence=None, wrong="", hangs=False, jitter=None):
        self.ns = ns or {}
        self.seen = evidence or Evidence()
        self.wrong_text = wrong
        self.hangs = hangs
        self.jitter = jitter or (lambda _: 0)
        self.calls = []
        self.runs = 0
        self.clocks = defaultdict(int)
        self.is_held = False

    def prepare(self, program, /):
        self.calls.append(("prepare", len(program.launches)))

    def event(self):
        return FakeEvent()

    def begin(self):
        assert not self.is_held
        self.is_held = True
        self.runs += 1
        self.clocks = defaultdict(lambda: 1000)
        return FakeEvent(at_ns=1000)

    def release(self):
        assert self.is_held
        self.is_held = False

    def record(self, event, stream, /):
        assert self.is_held, "everything is enqueued while streams are held back"
        event.at_ns = self.clocks[stream]
        self.calls.append(("record", stream))

    def wait(self, stream, event, /):
        assert event.at_ns is not None, "a wait for an event that is recorded later would hang on a GPU"
        self.clocks[stream] = max(self.clocks[stream], event.at_ns)
        self.calls.append(("wait", stream))

    def launch(self, launch, /):
        whole = self.ns.get(launch.task.id, 100) + self.jitter(self.runs)
        share = whole * (launch.part + 1) // launch.parts - whole * launch.part // launch.parts
        self.clocks[launch.stream] += share
        self.calls.append(("launch", launch.task.id, launch.part))

    def finish(self, *, seconds):
        assert not self.is_held
        if self.hangs:
            raise WaitTimeoutError(f"not done after {seconds:.0f} s: made up.")

    def elapsed_ns(self, begin, end, /):
        return end.at_ns - begin.at_ns

    def evidence(self):
        return self.seen

    def wrong(self):
        return self.wrong_text
