"""What a layer's ops must add up to, whatever the parallelism."""

from __future__ import annotations

import pytest

from conccl.core.errors import InputError
from conccl.core.ops import Attention, Collective, CollectiveKind, Gemm
from conccl.workloads.layers import (
    Batch,
    Group,
    LayerOp,
    Phase,
    backward,
    forward,
    gradient_scatter,
    parameter_gather,
)
from conccl.workloads.models import model, model_names
from conccl.workloads.parallel import Parallelism

BATCH = Batch(sequences=2, length=1024)


def gemm_flops(ops: tuple[LayerOp, ...]) -> int:
    return sum(item.op.flops for item in ops if isinstance(item.op, Gemm))


def collectives(ops: tuple[LayerOp, ...]) -> list[tuple[CollectiveKind, Group]]:
    return [(item.op.kind, item.group) for item in ops if isinstance(item.op, Collective)]


@pytest.mark.parametrize("name", sorted(set(model_names()) - {"mixtral-8x7b", "deepseek-v3"}))
def test_forward_gemms_do_two_flops_a_weight_and_token(name: str) -> None:
    dims = model(name)
    weights = dims.attention_parameters + dims.ffn_parameters(layer=0)
    ops = forward(dims, layer=0, parallelism=Parallelism(), batch=BATCH)
    assert gemm_flops(ops) == 2 * weights * BATCH.tokens


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3"])
def test_experts_do_the_work_of_the_chosen_ones(name: str) -> None:
    dims = model(name)
    matrices = 3 * dims.hidden * dims.expert_ffn
    chosen = (dims.experts_per_token + dims.shared_experts) * matrices + dims.hidden * dims.experts
    ops = forward(dims, layer=dims.dense_layers, parallelism=Parallelism(), batch=BATCH)
    assert gemm_flops(ops) == 2 * (dims.attention_parameters + chosen) * BATCH.tokens


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallel_ranks_share_the_gemms(tp: int) -> None:
    dims = model("llama3-70b")
    alone = gemm_flops(forward(dims, layer=0, parallelism=Parallelism(), batch=BATCH))
    shared = gemm_flops(forward(dims, layer=0, parallelism=Parallelism(tp=tp), batch=BATCH))
    assert shared * tp == alone


def test_backward_does_twice_the_gemms() -> None:
    dims = model("gpt3-175b")
    once = forward(dims, layer=0, parallelism=Parallelism(tp=8), batch=BATCH)
    back = backward(dims, layer=0, parallelism=Parallelism(tp=8), batch=BATCH)
    assert gemm_flops(back) == 2 * gemm_flops(once)
    assert {item.op.flops for item in back if isinstance(item.op, Attention)} == {
        item.op.flops * 5 // 2 for item in once if isinstance(item.op, Attention)
    }


def test_sequence_parallelism_gathers_and_scatters() -> None:
    dims = model("llama3-8b")
    gather, scatter = (CollectiveKind.ALL_GATHER, Group.TP), (CollectiveKind.REDUCE_SCATTER, Group.TP)
    sliced = Parallelism(tp=2)
    assert collectives(forward(dims, layer=0, parallelism=sliced, batch=BATCH)) == [gather, scatter] * 2
    assert collectives(backward(dims, layer=0, parallelism=sliced, batch=BATCH)) == [gather, scatter] * 2
    whole = Parallelism(tp=2, sequence_parallel=False)
    assert (
        collectives(forward(dims, layer=0, parallelism=whole, batch=BATCH))
        == [(CollectiveKind.ALL_REDUCE, Group.TP)] * 2
    )


def test_experts_are_dispatched_and_combined() -> None:
    ops = forward(model("mixtral-8x7b"), layer=0, parallelism=Parallelism(ep=8, fsdp=8), batch=BATCH)
    assert collectives(ops) == [(CollectiveKind.ALL_TO_ALL, Group.EP)] * 2


def test_sharded_parameters_are_gathered_and_their_gradients_scattered() -> None:
    dims = model("llama3-70b")
    parallelism = Parallelism(tp=8, fsdp=8)
    gather = parameter_gather(dims, layer=0, parallelism=parallelism)
    assert gather is not None
    assert gather.nbytes == (dims.attention_parameters + dims.ffn_parameters(layer=0)) // 8 * 2
    scatter = gradient_scatter(dims, layer=0, parallelism=parallelism)
    assert scatter is not None
    assert (scatter.kind, scatter.nbytes) == (CollectiveKind.REDUCE_SCATTER, gather.nbytes)
    assert parameter_gather(dims, layer=0, parallelism=Parallelism(tp=8)) is None


def test_decoding_takes_one_token_of_each_sequence() -> None:
    batch = Batch(sequences=16, length=4096, phase=Phase.DECODE)
    ops = forward(model("llama3-8b"), layer=0, parallelism=Parallelism(tp=2), batch=batch)
    assert {item.op.m for item in ops if isinstance(item.op, Gemm)} == {16}
    assert [item.op.keys for item in ops if isinstance(item.op, Attention)] == [4096]


def test_empty_batches_are_refused() -> None:
    with pytest.raises(InputError, match="both must be 1 or more"):
        Batch(sequences=0, length=8)
