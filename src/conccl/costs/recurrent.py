"""Recurrent layers: a product over all inputs at once, then a chain of steps, each a product and a cell.

A step waits for the one before it, so that its latency counts, not its work, unless the weights are large:
they are read from L2 in every step. Layers run behind each other on streams of their own, a step apart, where
there is one way; both ways run beside each other. Each adds a part of a chain, and all of its work.
"""

from __future__ import annotations

from conccl.core.hardware import Device
from conccl.core.kinds import DType, Layout, Pass
from conccl.core.ops import Gemm, Recurrent
from conccl.costs.constants import constant
from conccl.costs.gemm import ALIGNMENT, gemm_kernels, peak_flops
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, KernelCost, kernel_cost

TILE = 64
"""Outputs of a CTA along the gates: a step's product is small."""


def recurrent_kernels(op: Recurrent, device: Device, /) -> tuple[KernelCost, ...]:
    """The products over all steps, and the chain as one kernel that holds its SMs throughout."""
    dtype = _dtype(op, device)
    gates, rows = op.kind.gates * op.hidden_size, op.batch * op.steps
    widths = [op.input_size] + [op.ways * op.hidden_size] * (op.layers - 1)
    backward = op.direction is Pass.BACKWARD
    kernels: list[KernelCost] = []
    for width in widths:
        for _ in range(op.ways):
            if backward:
                kernels += gemm_kernels(Gemm(m=rows, n=width, k=gates, dtype=dtype, layout=Layout.NN), device)
                both = width + op.hidden_size
                kernels += gemm_kernels(Gemm(m=gates, n=both, k=rows, dtype=dtype, layout=Layout.TN), device)
            else:
                kernels += gemm_kernels(Gemm(m=rows, n=gates, k=width, dtype=dtype), device)
    return (*kernels, _chain(op, dtype, device))


def side_by_side_ns(op: Recurrent, device: Device, /, *, launches: int, gap_ns: float) -> float:
    """By how much the durations of its kernels exceed the time that they take; below 0 for a single chain.

    Layers and ways run on streams of their own. As many steps are under way together as all of them are over
    the length of the chain, and between two kernels of a stream nothing runs.
    """
    chain_ns = _chain(op, _dtype(op, device), device).isolated_ns
    together = op.layers * op.ways / _chains(op, device)
    return chain_ns * (together - 1) - launches * gap_ns


def _dtype(op: Recurrent, device: Device) -> DType:
    return DType.TF32 if op.dtype is DType.FP32 and DType.TF32 in device.peak_flops else op.dtype


def _kind(op: Recurrent) -> str:
    return f"recurrent_{op.direction}" + ("_fp32" if op.dtype.nbytes > 2 else "")


def _chains(op: Recurrent, device: Device) -> float:
    """The length of the chain, in chains of one layer and way."""
    layer_share = constant(device, f"{_kind(op)}.layer_share") if op.ways == 1 else 1.0
    way_share = constant(device, f"{_kind(op)}.way_share")
    return (1 + (op.layers - 1) * layer_share) * (1 + (op.ways - 1) * way_share)


def _chain(op: Recurrent, dtype: DType, device: Device) -> KernelCost:
    """All steps of all layers."""
    kind = _kind(op)
    gates = op.kind.gates * op.hidden_size
    size = op.dtype.nbytes
    waited_ns = op.steps * _chains(op, device) * constant(device, f"{kind}.step_ns")
    every = op.steps * op.layers * op.ways
    weights_nbytes = every * gates * op.hidden_size * size
    flops = 2 * every * op.batch * gates * op.hidden_size
    odd = op.hidden_size * size % ALIGNMENT != 0
    rate = peak_flops(dtype, device) * constant(device, f"{kind}.rate_share") / 1e9
    streamed = device.l2_bandwidth * constant(device, f"{kind}.l2_share") / 1e9
    work_ns = max(flops / rate, weights_nbytes / streamed)
    if odd:
        waited_ns *= constant(device, f"{kind}.odd_factor")
        work_ns *= constant(device, f"{kind}.odd_factor")
    count = max(1, min(device.sm_count, -(-gates // TILE) * op.ways))
    held = op.layers * op.ways * gates * op.hidden_size * size
    work = CtaWork(
        latency_ns=waited_ns,
        least_ns=work_ns,
        hbm_read_nbytes=(held + op.batch * op.steps * gates * size) / count,
        hbm_write_nbytes=op.batch * op.steps * op.layers * op.ways * op.hidden_size * size / count,
        l2_nbytes=min(weights_nbytes, work_ns * device.l2_bandwidth / 1e9) / count,
        flops=flops / count,
    )
    return kernel_cost(
        kind,
        device=device,
        groups=(CtaGroup(count=count, work=work),),
        footprint=Footprint(threads=256, registers=256 * 128),
        ctas_per_sm=1,
        fixed_ns=constant(device, f"{kind}.start_ns"),
        uncertainty=constant(device, f"{kind}.uncertainty"),
        model=kind,
        l2_footprint_nbytes=float(held),
    )
