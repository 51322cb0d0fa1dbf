"""Steps of models as plans: recomputation, unfused attention, what surrounds the layers."""

from __future__ import annotations

import dataclasses

import pytest

from conccl.core.kinds import Pass
from conccl.core.ops import Attention, Collective, Gemm
from conccl.core.plan import Plan
from conccl.workloads.layers import Batch, Phase, forward
from conccl.workloads.models import model
from conccl.workloads.parallel import Parallelism
from conccl.workloads.steps import (
    AttentionKernels,
    Recompute,
    Workload,
    ends_plan,
    layers_plan,
    model_flops,
    stage_transfer,
    update_plan,
)
from conccl.workloads.unfused import unfused


def workload(name: str = "llama3-8b", **degrees: int) -> Workload:
    return Workload(
        model=model(name), parallelism=Parallelism(**degrees), batch=Batch(sequences=1, length=2048)
    )


def flops(plan: Plan) -> int:
    return sum(task.op.flops for task in plan.tasks if isinstance(task.op, Gemm | Attention))


def test_training_does_six_flops_a_weight_and_token() -> None:
    work = workload()
    weights = work.model.parameters - work.model.vocab * work.model.hidden
    attention = model_flops(work) - 6 * weights * work.batch.tokens
    cores = 3 * work.model.layers * 2 * 2 * work.model.heads * 2048 * 2048 * work.model.head_dim // 2
    assert attention == cores


def test_full_recomputation_adds_a_forward_pass() -> None:
    work = workload(tp=2)
    plain = layers_plan(work, layers=(0, 1))
    again = layers_plan(dataclasses.replace(work, recompute=Recompute.FULL), layers=(0, 1))
    inference = dataclasses.replace(work, batch=dataclasses.replace(work.batch, phase=Phase.PREFILL))
    assert flops(again) - flops(plain) == flops(layers_plan(inference, layers=(0, 1)))


def test_selective_recomputation_adds_the_attention_core() -> None:
    work = workload()
    plain = layers_plan(work, layers=(0,))
    again = layers_plan(dataclasses.replace(work, recompute=Recompute.ATTENTION), layers=(0,))
    extra = {task.id for task in again.tasks} - {task.id for task in plain.tasks}
    assert extra == {"0.attention.core.again"}


@pytest.mark.parametrize(("direction", "gemms"), [(Pass.FORWARD, 2), (Pass.BACKWARD, 4)])
def test_unfused_attention_does_all_its_gemms(direction: Pass, gemms: int) -> None:
    plan = layers_plan(
        dataclasses.replace(workload("gpt3-175b", tp=8), attention=AttentionKernels.UNFUSED), layers=(0,)
    )
    assert not any(isinstance(task.op, Attention) for task in plan.tasks)
    name = "0.attention.core." if direction is Pass.FORWARD else "0.attention.core.grad."
    own = [
        task.op
        for task in plan.tasks
        if task.id.startswith(name) and (".grad." in task.id) == (direction is Pass.BACKWARD)
    ]
    assert sum(isinstance(op, Gemm) for op in own) == gemms


def test_other_ops_stay_whole() -> None:
    work = workload()
    for item in forward(work.model, layer=0, parallelism=work.parallelism, batch=work.batch):
        if not isinstance(item.op, Attention):
            assert unfused(item) == (item,)


def test_weights_are_gathered_one_layer_ahead() -> None:
    plan = layers_plan(workload(fsdp=8), layers=(0, 1, 2))
    order = [task.id for task in plan.tasks]
    assert order.index("1.weights.forward") < order.index("0.attention.norm")
    assert order.index("2.weights.forward") < order.index("1.attention.norm")
    assert sum(isinstance(task.op, Collective) for task in plan.tasks) == 9


def test_ends_and_update() -> None:
    work = workload(tp=8)
    assert [task.id for task in ends_plan(work).tasks][:2] == ["embedding", "head"]
    (update,) = update_plan(work).tasks
    assert update.op.nbytes > 0


def test_stages_pass_activations_on() -> None:
    assert stage_transfer(workload()) is None
    transfer = stage_transfer(workload("llama3-70b", pp=4, tp=8))
    assert transfer is not None
    assert transfer.nbytes == 2048 * 8192 * 2 // 8
