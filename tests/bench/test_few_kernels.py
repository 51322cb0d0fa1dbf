"""A step's kernel time from a few of its kernels, on the device where they were chosen and on another."""

from __future__ import annotations

import pytest

from conccl.bench.few_kernels import chosen_durations, scaled, simulated_kernels
from conccl.core.errors import InputError
from conccl.core.ops import Elementwise, Gemm
from conccl.costs.catalogue import load_device
from conccl.sampling.kernels import sample_kernels
from conccl.workloads.captured import Captured, HostCall, Kernel, KernelCall, Phase

HERE, THERE = load_device("h200-sxm"), load_device("a100-sxm")


def captured(layers: int) -> Captured:
    """Layers that are alike, with GEMMs of three widths, and small additions."""
    ops = []
    for layer in range(layers):
        width = 1024 * (1 + layer % 3)
        ops += [
            ("mm", Gemm(m=4096, n=width, k=4096)),
            ("add", Elementwise(name="add", read_nbytes=8192 * width, written_nbytes=8192 * width)),
        ]
    kernels = tuple(KernelCall(kernel=Kernel(name=name, op=op), lane="compute") for name, op in ops)
    calls = tuple(
        HostCall(name=name, phase=Phase.PYTHON, first=index, count=1) for index, (name, _) in enumerate(ops)
    )
    return Captured(kernels=kernels, calls=calls)


def test_one_of_each_kind_stands_for_all_on_every_device() -> None:
    step = captured(60)
    names, durations = simulated_kernels(step, device=HERE)
    assert len(names) == len(durations) == 120
    assert len(set(names)) == 6
    sample = sample_kernels(names, durations)
    assert sample.kernels / len(sample.points) >= 20
    for device in (HERE, THERE):
        actual = int(simulated_kernels(step, device=device)[1].sum())
        found = scaled(step, sample, device=device)
        assert found.device == device.name
        assert found.error_percent is None
        assert found.projected_ns == pytest.approx(actual, rel=0.01)


def test_only_the_chosen_are_simulated_in_the_order_asked_for() -> None:
    step = captured(3)
    _, durations = simulated_kernels(step, device=HERE)
    assert chosen_durations(step, [4, 0], device=HERE) == pytest.approx(
        [int(durations[4]), int(durations[0])], rel=0.01
    )


def test_a_step_of_other_kernels_is_refused() -> None:
    names, durations = simulated_kernels(captured(4), device=HERE)
    sample = sample_kernels(names, durations)
    with pytest.raises(InputError, match="has 10 kernels on a100-sxm, 8 where they were chosen"):
        scaled(captured(5), sample, device=THERE)
