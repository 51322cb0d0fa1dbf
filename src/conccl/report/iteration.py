"""Simulated iterations of models, for people and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from conccl.bench.iteration import Iteration
from conccl.core.hardware import Device
from conccl.core.units import format_ns, format_share
from conccl.workloads.layers import Phase
from conccl.workloads.steps import Workload


def document(workload: Workload, device: Device, iteration: Iteration, /) -> dict[str, Any]:
    """The JSON of one simulated iteration; keys are part of the contract."""
    batch, spread = workload.batch, workload.parallelism
    return {
        "executor": "sim",
        "device": device.name,
        "gpus": iteration.gpus,
        "target": workload.model.name,
        "parallelism": {
            "tp": spread.tp,
            "pp": spread.pp,
            "dp": spread.dp,
            "fsdp": spread.fsdp,
            "ep": spread.ep,
            "microbatches": spread.microbatches,
        },
        "batch": {"sequences": batch.sequences, "length": batch.length, "phase": batch.phase.value},
        "iteration_ns": iteration.iteration_ns,
        "kernel_ns": iteration.kernel_ns,
        "kernels": iteration.kernels,
        "exposed_communication_ns": iteration.exposed_communication_ns,
        "bubble_ns": iteration.bubble_ns,
        "mfu": iteration.mfu,
        "tokens_per_second": tokens_per_second(workload, iteration),
        "unmodelled": [],
    }


def tokens_per_second(workload: Workload, iteration: Iteration, /) -> float:
    """Tokens that all replicas go through, or make while decoding, in a second."""
    spread = workload.parallelism
    tokens = workload.batch.tokens * spread.microbatches * spread.dp * spread.fsdp
    return tokens * 1e9 / iteration.iteration_ns


def render_iterations(
    workload: Workload, found: Sequence[tuple[str, Device, Iteration]], /
) -> RenderableType:
    """One row a device: what an iteration takes and where it goes."""
    spread, batch = workload.parallelism, workload.batch
    degrees = ", ".join(
        f"{name} {degree}"
        for name, degree in (
            ("tp", spread.tp),
            ("pp", spread.pp),
            ("dp", spread.dp),
            ("fsdp", spread.fsdp),
            ("ep", spread.ep),
            ("micro-batches", spread.microbatches),
        )
        if degree > 1
    )
    what = f"{batch.sequences} x {batch.length} tokens, {batch.phase.value}"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("device")
    for column in ("GPUs", "iteration", "exposed", "bubble", "MFU", "tokens/s"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, device, iteration in found:
        table.add_row(
            name or device.name,
            str(iteration.gpus),
            format_ns(iteration.iteration_ns),
            format_share(iteration.exposed_communication_ns / iteration.iteration_ns),
            format_share(iteration.bubble_ns / iteration.iteration_ns),
            format_share(iteration.mfu) if batch.phase is not Phase.DECODE else "-",
            f"{tokens_per_second(workload, iteration):,.0f}",
        )
    return Group(f"{workload.model.name}: {what}{'; ' + degrees if degrees else ''} (simulated)", table)
