"""Simulated iterations of models, for people and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conccl.bench.iteration import Iteration
from conccl.bench.iteration_sweep import Outcome
from conccl.core.hardware import Device
from conccl.core.units import format_ns, format_share
from conccl.report.names import shown
from conccl.report.texts import heading_lines, value_text
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


def whole_document(workload: Workload, found: Sequence[Outcome], /) -> dict[str, Any]:
    """The JSON of all variations; the first one that could be simulated stands at the top."""
    documents = [_outcome(workload, outcome) for outcome in found]
    first = next((one for one in documents if one["status"] == "ok"), documents[0])
    whole = {"schema": "conccl.simulate/1", **first}
    if len(documents) > 1:
        whole["variations"] = documents
    return whole


def _outcome(workload: Workload, outcome: Outcome) -> dict[str, Any]:
    changes, device = dict(outcome.variation.changes), outcome.variation.device
    if outcome.iteration is None:
        return {"set": changes, "status": "unsupported", "reason": outcome.reason, "device": device.name}
    figures = document(workload, device, outcome.iteration)
    return {"set": changes, "status": "ok", "reason": "", **figures}


def described(workload: Workload, /) -> str:
    """What is simulated, in a line."""
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
    return f"{workload.model.name}: {what}{'; ' + degrees if degrees else ''} (simulated)"


def figures_of(workload: Workload, iteration: Iteration, /) -> tuple[str, ...]:
    """The figures of an iteration as text, in the order of `FIGURES`."""
    return (
        str(iteration.gpus),
        format_ns(iteration.iteration_ns),
        format_share(iteration.exposed_communication_ns / iteration.iteration_ns),
        format_share(iteration.bubble_ns / iteration.iteration_ns),
        format_share(iteration.mfu) if workload.batch.phase is not Phase.DECODE else "-",
        f"{tokens_per_second(workload, iteration):,.0f}",
    )


FIGURES = ("GPUs", "iteration", "exposed", "bubble", "MFU", "tokens/s")


def render_iterations(workload: Workload, found: Sequence[Outcome], /) -> RenderableType:
    """One row a variation: its values, what an iteration takes, and where it goes."""
    fields = list(dict.fromkeys(field for each in found for field in each.variation.changes))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for field in fields or ["device"]:
        table.add_column(heading_lines(field), justify="right" if fields else "left", vertical="bottom")
    for column in FIGURES:
        table.add_column(column, justify="right", no_wrap=True, vertical="bottom")
    for outcome in found:
        values = outcome.variation.changes
        named = [value_text(field, values[field]) for field in fields] or [outcome.variation.device.name]
        if outcome.iteration is not None:
            table.add_row(*named, *figures_of(workload, outcome.iteration))
        else:
            table.add_row(*named, *("-" for _ in FIGURES))
    reasons = dict.fromkeys(outcome.reason for outcome in found if outcome.reason)
    return Group(described(workload), table, *(Text(shown(reason), style="yellow") for reason in reasons))
