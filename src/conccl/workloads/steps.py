"""A training or inference step of a published model as a plan: what one GPU of the cluster runs.

Every GPU of a group does the same, so the plan has the tasks of one rank, and its collectives say how many
join. Lanes are the streams that training frameworks use: one for computation, one for tensor parallelism
(whose collectives stand between a layer's ops), one to gather the next layer's weights (FSDP prefetches one
layer ahead), one to reduce gradients behind the layer that made them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from conccl.core.errors import InputError
from conccl.core.kinds import CollectiveKind, Fusion, OptimizerKind, Pass, RowwiseKind
from conccl.core.ops import Attention, Collective, Gather, Gemm, Op, OptimizerStep, Rowwise
from conccl.core.plan import Dependency, Plan, Side, Task
from conccl.workloads.layers import (
    NBYTES,
    Batch,
    LayerOp,
    Phase,
    backward,
    forward,
    gradient_scatter,
    parameter_gather,
)
from conccl.workloads.models import Transformer
from conccl.workloads.parallel import Parallelism
from conccl.workloads.unfused import unfused

COMPUTE_LANE = "compute"
GATHER_LANE = "gather"
SCATTER_LANE = "scatter"


class Recompute(enum.StrEnum):
    """What going backward computes again instead of keeping it (arXiv:2205.05198)."""

    NONE = "none"
    ATTENTION = "attention"
    """The attention core alone: selective recomputation."""
    FULL = "full"
    """Every layer, from its input."""


class AttentionKernels(enum.StrEnum):
    """Whether attention is one kernel each way, or one for each of its steps."""

    FUSED = "fused"
    UNFUSED = "unfused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model, how it is spread, and what one replica works on at a time."""

    model: Transformer
    parallelism: Parallelism
    batch: Batch
    recompute: Recompute = Recompute.NONE
    attention: AttentionKernels = AttentionKernels.FUSED

    def __post_init__(self) -> None:
        if self.batch.phase is Phase.DECODE and not self.model.causal:
            raise InputError(
                f"{self.model.name} is an encoder, which makes no tokens. Use --phase prefill or training."
            )


def layers_plan(workload: Workload, /, *, layers: tuple[int, ...]) -> Plan:
    """These layers of the model, forward and (in training) backward, for one micro-batch."""
    plan = _Builder(workload=workload)
    for place, layer in enumerate(layers):
        plan.forward_layer(layer, following=layers[place + 1 :][:1])
    if workload.batch.phase is Phase.TRAINING:
        for place, layer in reversed(list(enumerate(layers))):
            plan.backward_layer(layer, following=layers[:place][-1:])
    return plan.built(f"{workload.model.name}: layers {', '.join(map(str, layers))}")


def ends_plan(workload: Workload, /) -> Plan:
    """What stands around the layers for one micro-batch: embedding, output projection, loss."""
    plan = _Builder(workload=workload)
    for name, op in _ends(workload):
        plan.compute(name, op)
    return plan.built(f"{workload.model.name}: embedding and loss")


def update_plan(workload: Workload, /) -> Plan:
    """The optimizer's step over the weights that one GPU keeps."""
    plan = _Builder(workload=workload)
    numel = workload.parallelism.parameters_per_gpu(workload.model)
    tensors = max(1, 8 * workload.model.layers // workload.parallelism.pp)
    plan.compute(
        "update", OptimizerStep(kind=OptimizerKind.ADAMW, numel=numel, tensors=tensors, fusion=Fusion.FUSED)
    )
    return plan.built(f"{workload.model.name}: optimizer step")


def stage_transfer(workload: Workload, /) -> Collective | None:
    """What one pipeline stage sends to the next for a micro-batch; None without pipeline parallelism."""
    parallelism = workload.parallelism
    if parallelism.pp == 1:
        return None
    slices = parallelism.tp if parallelism.sequence_parallel else 1
    nbytes = workload.batch.tokens * workload.model.hidden * NBYTES // slices
    return Collective(kind=CollectiveKind.SEND, nbytes=nbytes, ranks=2)


def model_flops(workload: Workload, /) -> int:
    """Operations that the model itself needs for one micro-batch, all replicas' parts of it together.

    Two for each weight that a token meets (Chowdhery et al. 2022, arXiv:2204.02311, appendix B), attention
    included; three times that in training. Recomputation does not count.
    """
    single = Parallelism()
    total = 0
    for layer in _distinct_layers(workload.model):
        ops = forward(workload.model, layer=layer.index, parallelism=single, batch=workload.batch)
        total += layer.count * sum(item.op.flops for item in ops if isinstance(item.op, Gemm | Attention))
    head = 2 * workload.batch.tokens * workload.model.hidden * workload.model.vocab
    return (3 if workload.batch.phase is Phase.TRAINING else 1) * (total + head)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """Layers that are alike, and the first of them."""

    index: int
    count: int


def layer_kinds(model: Transformer, /) -> tuple[LayerKind, ...]:
    """The kinds of layers that a model has: all alike, or dense ones before those with experts."""
    return tuple(_distinct_layers(model))


def _distinct_layers(model: Transformer) -> Iterable[LayerKind]:
    dense = model.dense_layers if model.experts else 0
    if dense:
        yield LayerKind(index=0, count=dense)
    yield LayerKind(index=dense, count=model.layers - dense)


def _ends(workload: Workload) -> Iterable[tuple[str, Op]]:
    model, batch, tp = workload.model, workload.batch, workload.parallelism.tp
    rows = batch.tokens if batch.phase is Phase.TRAINING else batch.sequences
    columns = -(-model.vocab // tp)
    head = Gemm(m=rows, n=columns, k=model.hidden)
    yield "embedding", Gather(rows=batch.tokens, cols=model.hidden, table_rows=columns)
    yield "head", head
    if batch.phase is not Phase.TRAINING:
        return
    yield "loss", Rowwise(kind=RowwiseKind.LOG_SOFTMAX, rows=rows, cols=columns)
    yield (
        "loss.grad",
        Rowwise(kind=RowwiseKind.LOG_SOFTMAX, rows=rows, cols=columns, direction=Pass.BACKWARD),
    )
    yield "head.dgrad", Gemm(m=rows, n=model.hidden, k=columns)
    yield "head.wgrad", Gemm(m=columns, n=model.hidden, k=rows)
    yield (
        "embedding.grad",
        Gather(rows=batch.tokens, cols=model.hidden, table_rows=columns, direction=Pass.BACKWARD),
    )


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Adds tasks in issue order."""

    workload: Workload
    tasks: list[Task] = field(default_factory=list)
    last_compute: str | None = None
    awaited: list[str] = field(default_factory=list)
    """Collectives that the next computation waits for."""
    gathered: dict[tuple[int, Pass], str] = field(default_factory=dict)

    def forward_layer(self, layer: int, /, *, following: tuple[int, ...]) -> None:
        """The layer's ops; the weights of the following one are gathered meanwhile."""
        self._gather(layer, Pass.FORWARD)
        for next_ in following:
            self._gather(next_, Pass.FORWARD, after=self.last_compute)
        self._await_gather(layer, Pass.FORWARD)
        work = self.workload
        self._ops(layer, forward(work.model, layer=layer, parallelism=work.parallelism, batch=work.batch))

    def backward_layer(self, layer: int, /, *, following: tuple[int, ...]) -> None:
        """The layer's gradients; then their reduction, beside the next layer's computation."""
        self._gather(layer, Pass.BACKWARD)
        for next_ in following:
            self._gather(next_, Pass.BACKWARD, after=self.last_compute)
        self._await_gather(layer, Pass.BACKWARD)
        work = self.workload
        self._ops(layer, self._again(layer))
        self._ops(layer, backward(work.model, layer=layer, parallelism=work.parallelism, batch=work.batch))
        op = gradient_scatter(work.model, layer=layer, parallelism=work.parallelism)
        if op is not None:
            self._communicate(f"{layer}.gradients", op, lane=SCATTER_LANE, after=self.last_compute)

    def _again(self, layer: int, /) -> Iterable[LayerOp]:
        """What is computed a second time before the layer's gradients."""
        work = self.workload
        if work.recompute is Recompute.NONE:
            return
        for item in forward(work.model, layer=layer, parallelism=work.parallelism, batch=work.batch):
            if work.recompute is Recompute.FULL or isinstance(item.op, Attention):
                yield replace(item, name=f"{item.name}.again")

    def compute(self, id_: str, op: Op, /) -> None:
        """One computation, behind the collectives that it waits for."""
        after = tuple(Dependency(task=other) for other in self.awaited)
        self.awaited.clear()
        self.tasks.append(Task(id=id_, op=op, lane=COMPUTE_LANE, after=after))
        self.last_compute = id_

    def built(self, label: str, /) -> Plan:
        """The plan."""
        return Plan(tasks=tuple(self.tasks), label=label)

    def _ops(self, layer: int, items: Iterable[LayerOp]) -> None:
        for item in self._kernels(items):
            id_ = f"{layer}.{item.name}"
            if isinstance(item.op, Collective):
                self._communicate(id_, item.op, lane=str(item.group), after=self.last_compute)
                self.awaited.append(id_)
            else:
                self.compute(id_, item.op)

    def _kernels(self, items: Iterable[LayerOp]) -> Iterable[LayerOp]:
        if self.workload.attention is AttentionKernels.FUSED:
            return items
        return (part for item in items for part in unfused(item))

    def _gather(self, layer: int, direction: Pass, *, after: str | None = None) -> None:
        if (layer, direction) in self.gathered:
            return
        op = parameter_gather(self.workload.model, layer=layer, parallelism=self.workload.parallelism)
        if op is not None:
            id_ = f"{layer}.weights.{direction}"
            self._communicate(id_, op, lane=GATHER_LANE, after=after)
            self.gathered[layer, direction] = id_

    def _await_gather(self, layer: int, direction: Pass) -> None:
        if (layer, direction) in self.gathered:
            self.awaited.append(self.gathered[layer, direction])

    def _communicate(self, id_: str, op: Collective, *, lane: str, after: str | None) -> None:
        dependencies = () if after is None else (Dependency(task=after),)
        self.tasks.append(Task(id=id_, op=op, lane=lane, side=Side.COMMUNICATION, after=dependencies))
