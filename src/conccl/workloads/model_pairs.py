"""The pairs of a model: communication that may run beside computation because neither needs the other.

They are: the gather of the next layer's weights beside this layer's GEMMs, the reduction of the last layer's
gradients beside this layer's backward GEMMs (FSDP, data parallelism), and the all-to-all of one micro-batch's
experts beside the other's GEMMs. What tensor parallelism communicates depends on the op beside it, and
belongs to fused operators.
"""

from __future__ import annotations

from collections.abc import Iterator

from conccl.core.errors import InputError
from conccl.core.ops import Collective, Gemm
from conccl.core.pair import Pair
from conccl.workloads.layers import (
    Group,
    LayerOp,
    Phase,
    backward,
    forward,
    gradient_scatter,
    parameter_gather,
)
from conccl.workloads.steps import Workload, layer_kinds


def pairs_of_model(workload: Workload, /) -> tuple[Pair, ...]:
    """The independent pairs of one layer of each kind; equal ones once."""
    pairs = tuple(dict.fromkeys(_pairs(workload)))
    if not pairs:
        raise InputError(
            f"{workload.model.name} with this parallelism communicates nothing that could run beside compute."
            " Give --fsdp, --dp or --ep above 1; what --tp communicates belongs to fused operators."
        )
    return pairs


def _pairs(workload: Workload) -> Iterator[Pair]:
    spread, batch = workload.parallelism, workload.batch
    for kind in layer_kinds(workload.model):
        ahead = forward(workload.model, layer=kind.index, parallelism=spread, batch=batch)
        gather = parameter_gather(workload.model, layer=kind.index, parallelism=spread)
        yield from _beside(workload, ahead, gather, "gather of the next layer's weights")
        yield from _beside_experts(workload, ahead)
        if batch.phase is Phase.TRAINING:
            back = backward(workload.model, layer=kind.index, parallelism=spread, batch=batch)
            scatter = gradient_scatter(workload.model, layer=kind.index, parallelism=spread)
            yield from _beside(workload, back, scatter, "reduction of the last layer's gradients")


def _beside(
    workload: Workload, items: tuple[LayerOp, ...], communication: Collective | None, what: str
) -> Iterator[Pair]:
    if communication is None:
        return
    for item in items:
        if isinstance(item.op, Gemm):
            source = f"{workload.model.name} {item.name} beside the {what}"
            yield Pair(compute=item.op, communication=communication, source=source)


def _beside_experts(workload: Workload, items: tuple[LayerOp, ...]) -> Iterator[Pair]:
    """Two micro-batches: while one is dispatched, the other's GEMMs run."""
    exchange = next((item.op for item in items if item.group is Group.EP), None)
    if isinstance(exchange, Collective):
        yield from _beside(workload, items, exchange, "other micro-batch's all-to-all")
