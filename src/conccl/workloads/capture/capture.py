"""One step of a program, captured."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch

from conccl.core.hardware import Device
from conccl.core.units import format_bytes
from conccl.workloads.capture import choices
from conccl.workloads.capture.autocast import Autocast
from conccl.workloads.capture.cuda import presented
from conccl.workloads.capture.flex import higher_order
from conccl.workloads.capture.frames import counting_frames
from conccl.workloads.capture.holding import held_nbytes
from conccl.workloads.capture.interception import AUTOCAST_KEY, CHOICE_KEY, intercepting
from conccl.workloads.capture.job import job
from conccl.workloads.capture.present import Present, presenting_backward
from conccl.workloads.capture.program import Program
from conccl.workloads.capture.record import Record
from conccl.workloads.capture.values import Values
from conccl.workloads.captured import Captured

WARM_UP_STEPS = 1
"""Steps before the one that is captured: optimizers make their state in the first."""

WARM_UP_STEPS_OF_SEVERAL = 2
"""On several GPUs: DistributedDataParallel puts its buckets in order in the second."""


def capture_step(
    build: Callable[[], Callable[[], Any]], /, *, device: Device, ranks: int = 1, rank: int = 0
) -> Captured:
    """Build model and input on a GPU that is not there, run a step to warm up and one to capture it."""
    with capturing(device=device, ranks=ranks, rank=rank) as program:
        step = build()
        for _ in range(WARM_UP_STEPS if ranks == 1 else WARM_UP_STEPS_OF_SEVERAL):
            step()
        program.clear()
        with counting_frames(program):
            kept = step()
        _check_memory(program, device)
        del kept
        return program.captured()


def _check_memory(program: Program, device: Device) -> None:
    """A step that keeps more than the GPU has would not have run there."""
    with torch._C.DisableTorchFunction():
        held = held_nbytes()
        if held > device.hbm_nbytes:  # what an earlier program left may be among it
            gc.collect()
            held = held_nbytes()
    if held > device.hbm_nbytes:
        program.warn(
            f"Between steps the program holds {format_bytes(held)} and {device.name} has"
            f" {format_bytes(device.hbm_nbytes)}: {format_bytes(held - device.hbm_nbytes)} are missing,"
            " and what a step needs besides. It would not run there."
        )


@contextlib.contextmanager
def capturing(*, device: Device, ranks: int = 1, rank: int = 0) -> Iterator[Program]:
    """Whatever PyTorch code runs meanwhile is recorded; nothing of it remains afterwards."""
    program, autocast = Program(device=device), Autocast()
    present = Present(program)
    with (
        job(ranks=ranks, per_node=device.gpus_per_node, rank=rank),
        torch.random.fork_rng(devices=[]),
        presented(program, device, autocast),
        intercepting(autocast.handlers(), key=AUTOCAST_KEY),
        intercepting(choices.HANDLERS, key=CHOICE_KEY),
        present,
        presenting_backward(present),
        higher_order(),
        Record(program, Values()),
    ):
        torch.manual_seed(0)
        yield program
