"""Sums of kernel durations as a profiler has them: without gaps, and side by side counted twice."""

from __future__ import annotations

from conccl.bench.profiled import profiled_ns
from conccl.core.kinds import DType, Pass, RecurrentKind
from conccl.core.ops import Elementwise, Recurrent
from conccl.costs.catalogue import load_device
from conccl.costs.constants import constant
from conccl.costs.kernels import kernels_of
from conccl.workloads.captured import Kernel

DEVICE = load_device("h200-sxm")


def profiled(op, *, launches=1):
    duration_ns = round(sum(kernel.isolated_ns for kernel in kernels_of(op, DEVICE)))
    return profiled_ns(
        Kernel(name="x", op=op, launches=launches), op, duration_ns, device=DEVICE
    ), duration_ns


def recurrent(*, layers, ways=1):
    return Recurrent(
        kind=RecurrentKind.LSTM,
        batch=32,
        steps=50,
        input_size=512,
        hidden_size=512,
        layers=layers,
        ways=ways,
        direction=Pass.FORWARD,
        dtype=DType.FP32,
    )


def test_a_kernel_ends_before_the_next_one_of_its_graph_begins():
    shown, duration = profiled(Elementwise(name="add", read_nbytes=1 << 26, written_nbytes=1 << 25))
    assert duration - shown == constant(DEVICE, "host.turn_ns")


def test_layers_and_ways_that_run_side_by_side_count_for_themselves():
    assert profiled(recurrent(layers=2), launches=200)[0] > profiled(recurrent(layers=2))[1]
    assert profiled(recurrent(layers=1, ways=2), launches=200)[0] > profiled(recurrent(layers=1, ways=2))[1]
    alone, duration = profiled(recurrent(layers=1), launches=100)
    assert alone < duration
