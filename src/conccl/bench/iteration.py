"""How long a step of a published model takes on a cluster: a few layers through an executor, then counted up.

Layers that are alike take the same time from the third one on: what the first gather or the last reduction
leave exposed happens once. So three and four layers of each kind are run, and the difference counts for each
further layer; micro-batches and pipeline stages repeat the whole. Nothing depends on the number of GPUs but
the collectives, which say how many join.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from conccl.core.executor import Executor
from conccl.core.hardware import Device
from conccl.core.kinds import DType
from conccl.core.ops import Collective
from conccl.core.plan import Plan, Side, Task
from conccl.core.timeline import Timeline
from conccl.costs.gemm import peak_flops
from conccl.traces.breakdown import split
from conccl.workloads.layers import Phase
from conccl.workloads.steps import (
    LayerKind,
    Workload,
    ends_plan,
    layer_kinds,
    layers_plan,
    model_flops,
    stage_transfer,
    update_plan,
)

FEW_LAYERS = 3
"""Layers after which each further one adds the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Time on the busiest GPU, and what it is made of."""

    span_ns: float = 0
    kernel_ns: float = 0
    exposed_ns: float = 0
    kernels: float = 0

    def __add__(self, other: Cost) -> Cost:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Cost) -> Cost:
        return self._with(other, lambda a, b: a - b)

    def times(self, count: float, /) -> Cost:
        """So many of it, one after the other."""
        return Cost(
            span_ns=self.span_ns * count,
            kernel_ns=self.kernel_ns * count,
            exposed_ns=self.exposed_ns * count,
            kernels=self.kernels * count,
        )

    def _with(self, other: Cost, combine: Callable[[float, float], float]) -> Cost:
        return Cost(
            span_ns=combine(self.span_ns, other.span_ns),
            kernel_ns=combine(self.kernel_ns, other.kernel_ns),
            exposed_ns=combine(self.exposed_ns, other.exposed_ns),
            kernels=combine(self.kernels, other.kernels),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One step of a model on a cluster."""

    iteration_ns: int
    kernel_ns: int
    """Sum of kernel durations on the busiest GPU."""
    kernels: int
    exposed_communication_ns: int
    bubble_ns: int
    """Of it, waiting for the pipeline to fill and drain."""
    mfu: float
    """Operations that the model needs, over what the GPUs could do in the time."""
    gpus: int
    timeline: Timeline | None
    """The representative layers of one micro-batch; None where only the figures were kept."""


def simulate_iteration(workload: Workload, /, *, executor: Executor, device: Device) -> Iteration:
    """One training iteration, or one forward pass in inference, on the GPUs that the parallelism takes."""
    parallelism = workload.parallelism
    layers, timeline = _stage(workload, executor=executor)
    ends = _cost(executor.run(ends_plan(workload)))
    microbatch = layers + ends
    busy = microbatch.times(parallelism.microbatches)
    if workload.batch.phase is Phase.TRAINING:
        busy += _last_reduction(workload, executor=executor, layers=layers)
        busy += _cost(executor.run(update_plan(workload)))
    transfer_ns = _transfer_ns(workload, executor=executor)
    # interleaved stages fill and drain in that many smaller steps (arXiv:2104.04473, section 2.2)
    bubble_ns = (parallelism.pp - 1) * (layers.span_ns / parallelism.interleaving + 2 * transfer_ns)
    iteration_ns = busy.span_ns + bubble_ns
    possible = parallelism.tp * parallelism.pp * peak_flops(DType.BF16, device) * iteration_ns / 1e9
    return Iteration(
        iteration_ns=round(iteration_ns),
        kernel_ns=round(busy.kernel_ns),
        kernels=round(busy.kernels),
        exposed_communication_ns=round(busy.exposed_ns + 2 * (parallelism.pp - 1) * transfer_ns),
        bubble_ns=round(bubble_ns),
        mfu=model_flops(workload) * parallelism.microbatches / possible,
        gpus=parallelism.gpus,
        timeline=timeline,
    )


def _stage(workload: Workload, *, executor: Executor) -> tuple[Cost, Timeline]:
    """One pipeline stage's layers for one micro-batch, and the timeline of those that were run."""
    each = workload if _reduces_each_time(workload) else _without_replicas(workload)
    costs = Cost()
    timeline: Timeline | None = None
    for kind in layer_kinds(workload.model):
        cost, run = _layers(each, kind, count=kind.count / workload.parallelism.pp, executor=executor)
        costs += cost
        timeline = run
    assert timeline is not None, "a model has at least one kind of layer"
    return costs, timeline


def _layers(
    workload: Workload, kind: LayerKind, *, count: float, executor: Executor
) -> tuple[Cost, Timeline]:
    run = min(kind.count, FEW_LAYERS + 1)
    timeline = executor.run(layers_plan(workload, layers=_numbers(kind, run)))
    most = _cost(timeline)
    if run <= FEW_LAYERS:
        return most.times(count / run), timeline
    fewer = _cost(executor.run(layers_plan(workload, layers=_numbers(kind, FEW_LAYERS))))
    return fewer + (most - fewer).times(count - FEW_LAYERS), timeline


def _numbers(kind: LayerKind, count: int) -> tuple[int, ...]:
    return tuple(range(kind.index, kind.index + count))


def _cost(timeline: Timeline) -> Cost:
    return Cost(
        span_ns=timeline.span_ns,
        kernel_ns=int(timeline.duration_ns.sum()),
        exposed_ns=split(timeline).communication_only_ns,
        kernels=len(timeline),
    )


def _reduces_each_time(workload: Workload) -> bool:
    """Sharded gradients are reduced after every micro-batch, replicated ones after the last."""
    return workload.parallelism.fsdp > 1


def _without_replicas(workload: Workload) -> Workload:
    return replace(workload, parallelism=replace(workload.parallelism, dp=1))


def _last_reduction(workload: Workload, *, executor: Executor, layers: Cost) -> Cost:
    """What the replicas' gradient all-reduce adds beside the last micro-batch's backward pass."""
    if _reduces_each_time(workload) or workload.parallelism.dp == 1:
        return Cost()
    with_reduction = Cost()
    for kind in layer_kinds(workload.model):
        with_reduction += _layers(
            workload, kind, count=kind.count / workload.parallelism.pp, executor=executor
        )[0]
    return with_reduction - layers


def _transfer_ns(workload: Workload, *, executor: Executor) -> int:
    op = stage_transfer(workload)
    return 0 if op is None else _alone_ns(op, executor=executor)


def _alone_ns(op: Collective, *, executor: Executor) -> int:
    task = Task(id="transfer", op=op, lane="pp", side=Side.COMMUNICATION)
    return executor.run(Plan(tasks=(task,))).span_ns
