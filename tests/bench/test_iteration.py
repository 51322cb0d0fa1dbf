"""What must hold for iterations of models, on an executor whose times are known."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from conccl.bench.iteration import FEW_LAYERS, simulate_iteration
from conccl.core.executor import FakeExecutor
from conccl.core.ops import Collective
from conccl.core.plan import Plan, Task
from conccl.core.timeline import Timeline
from conccl.costs.catalogue import load_device
from conccl.workloads.layers import Batch, Phase
from conccl.workloads.models import model
from conccl.workloads.parallel import Parallelism
from conccl.workloads.steps import Workload, ends_plan, layers_plan, update_plan

DEVICE = load_device("h200-sxm")


class ByWork:
    """Computation takes a nanosecond for 1e6 operations or 1e4 bytes, communication one for 1e5 bytes."""

    def run(self, plan: Plan, /) -> Timeline:
        return FakeExecutor(durations_ns={task.id: _ns(task) for task in plan.tasks}).run(plan)


def _ns(task: Task) -> int:
    if isinstance(task.op, Collective):
        return 1 + task.op.nbytes // 100_000
    return 1 + max(task.op.flops // 1_000_000, getattr(task.op, "nbytes", 0) // 10_000)


def workload(name: str = "llama3-70b", *, phase: Phase = Phase.TRAINING, **degrees: int) -> Workload:
    batch = Batch(sequences=1, length=2048, phase=phase)
    return Workload(model=model(name), parallelism=Parallelism(**degrees), batch=batch)


def iteration_ns(work: Workload) -> int:
    return simulate_iteration(work, executor=ByWork(), device=DEVICE).iteration_ns


@pytest.mark.parametrize("degrees", [{}, {"tp": 8}, {"fsdp": 64}, {"tp": 8, "fsdp": 8}])
def test_a_few_layers_tell_all(degrees: dict[str, int]) -> None:
    """From the third layer on each adds the same: what the extrapolation rests on."""
    work = workload(**degrees)
    spans = [
        ByWork().run(layers_plan(work, layers=tuple(range(count)))).span_ns for count in range(FEW_LAYERS, 9)
    ]
    steps = {after - before for before, after in itertools.pairwise(spans)}
    assert len(steps) == 1


@pytest.mark.parametrize("degrees", [{}, {"tp": 4}, {"fsdp": 8}])
def test_extrapolation_is_what_all_layers_take(degrees: dict[str, int]) -> None:
    short = dataclasses.replace(model("llama3-8b"), layers=12)
    work = dataclasses.replace(workload(**degrees), model=short)
    parts = [layers_plan(work, layers=tuple(range(12))), ends_plan(work), update_plan(work)]
    whole = [ByWork().run(plan) for plan in parts]
    result = simulate_iteration(work, executor=ByWork(), device=DEVICE)
    assert result.kernels == sum(len(timeline) for timeline in whole)
    assert result.iteration_ns == sum(timeline.span_ns for timeline in whole)


def test_microbatches_repeat() -> None:
    one, four = workload(tp=8), workload(tp=8, microbatches=4)
    update_ns = ByWork().run(update_plan(one)).span_ns
    assert iteration_ns(four) - update_ns == 4 * (iteration_ns(one) - update_ns)


def test_pipeline_bubble_shrinks_with_microbatches() -> None:
    def bubble_share(microbatches: int) -> float:
        result = simulate_iteration(
            workload(pp=8, microbatches=microbatches), executor=ByWork(), device=DEVICE
        )
        return result.bubble_ns / result.iteration_ns

    assert bubble_share(1) > 0.8
    assert bubble_share(8) == pytest.approx(7 / 15, rel=0.1)
    assert bubble_share(64) < 0.12


def test_replicas_reduce_gradients_once() -> None:
    alone, replicated = workload("llama3-8b"), workload("llama3-8b", dp=64)
    assert iteration_ns(replicated) > iteration_ns(alone)
    more = workload("llama3-8b", dp=64, microbatches=4)
    extra_of_one = iteration_ns(replicated) - iteration_ns(alone)
    extra_of_four = iteration_ns(more) - iteration_ns(workload("llama3-8b", microbatches=4))
    assert extra_of_four == pytest.approx(extra_of_one, rel=0.01)


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3"])
def test_experts_and_dense_layers_are_both_counted(name: str) -> None:
    result = simulate_iteration(workload(name, ep=8, fsdp=8), executor=ByWork(), device=DEVICE)
    assert result.kernels > 20 * model(name).layers
    assert 0 < result.mfu < 5


@pytest.mark.parametrize("phase", [Phase.PREFILL, Phase.DECODE])
def test_inference_has_no_backward_pass(phase: Phase) -> None:
    result = simulate_iteration(workload(tp=8, phase=phase), executor=ByWork(), device=DEVICE)
    training = simulate_iteration(workload(tp=8), executor=ByWork(), device=DEVICE)
    assert result.iteration_ns < training.iteration_ns / 2
    assert result.kernels < training.kernels / 2


def test_time_does_not_depend_on_how_many_replicas_there_are() -> None:
    few = simulate_iteration(workload(tp=8, fsdp=8), executor=ByWork(), device=DEVICE)
    many = simulate_iteration(workload(tp=8, fsdp=8, dp=1000), executor=ByWork(), device=DEVICE)
    assert few.iteration_ns == many.iteration_ns
    assert many.gpus == 64_000
