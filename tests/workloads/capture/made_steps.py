"""Captures of small pieces of PyTorch code, for tests."""

from __future__ import annotations

import warnings
from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from conccl.costs.catalogue import load_device  # noqa: E402
from conccl.workloads.capture.capture import capture_step, capturing  # noqa: E402

DEVICE = load_device("h200-sxm")


def captured(build):
    """One step of what ``build`` returns, built with the GPU as the current device."""

    def on_gpu():
        with torch.device("cuda"):
            return build()

    return capture_step(on_gpu, device=DEVICE)


def recorded(run):
    """What a function does once, without a step to warm up; the function's result beside it."""
    with capturing(device=DEVICE) as program, torch.device("cuda"), warnings.catch_warnings():
        result = run(program)
        return program.captured(), result


def names(captured):
    """Operator -> kernels, copies and memsets."""
    found = Counter()
    for call in captured.kernels:
        found[call.kernel.name] += call.kernel.launches
    return found
