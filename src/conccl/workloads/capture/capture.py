"""One step of a program, captured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from conccl.core.hardware import Device
from conccl.workloads.capture.cuda import presented
from conccl.workloads.capture.present import Present
from conccl.workloads.capture.program import Program
from conccl.workloads.capture.record import Record
from conccl.workloads.captured import Captured

WARM_UP_STEPS = 1
"""Steps before the one that is captured: optimizers make their state in the first."""


def capture_step(build: Callable[[], Callable[[], Any]], /, *, device: Device) -> Captured:
    """Build model and input on a GPU that is not there, run its step once to warm up and once to capture it."""
    with capturing(device=device) as program:
        step = build()
        for _ in range(WARM_UP_STEPS):
            step()
        program.clear()
        step()
        return program.captured()


@contextlib.contextmanager
def capturing(*, device: Device) -> Iterator[Program]:
    """Whatever PyTorch code runs meanwhile is recorded; nothing of it remains afterwards."""
    program = Program()
    with presented(program, device), Present(program), Record(program):
        yield program
