"""Which calls of fused operators a model's layer has."""

import dataclasses

import pytest

from conccl.core.errors import InputError
from conccl.core.plan import Engine
from conccl.tune.fused_model import calls_of_model
from conccl.tune.fused_problem import Call
from conccl.workloads.layers import Batch, Phase
from conccl.workloads.models import model
from conccl.workloads.parallel import Parallelism
from conccl.workloads.steps import Workload

WORKLOAD = Workload(
    model=model("llama3-70b"), parallelism=Parallelism(tp=8), batch=Batch(sequences=1, length=4096)
)


def calls(**changes):
    return [
        (one.name, one.problem.call, one.problem.m, one.problem.n, one.problem.k)
        for one in calls_of_model(dataclasses.replace(WORKLOAD, **changes))
    ]


def test_a_training_layer_has_them_both_ways():
    assert calls() == [
        ("attention.qkv", Call.ALL_GATHER_GEMM, 4096, 1280, 8192),
        ("attention.output", Call.GEMM_REDUCE_SCATTER, 4096, 8192, 1024),
        ("ffn.up", Call.ALL_GATHER_GEMM, 4096, 7168, 8192),
        ("ffn.down", Call.GEMM_REDUCE_SCATTER, 4096, 8192, 3584),
        ("ffn.down.dgrad", Call.ALL_GATHER_GEMM, 4096, 3584, 8192),
        ("ffn.up.dgrad", Call.GEMM_REDUCE_SCATTER, 4096, 8192, 7168),
        ("attention.output.dgrad", Call.ALL_GATHER_GEMM, 4096, 1024, 8192),
        ("attention.qkv.dgrad", Call.GEMM_REDUCE_SCATTER, 4096, 8192, 1280),
    ]


def test_inference_has_the_forward_ones_alone():
    assert len(calls(batch=Batch(sequences=1, length=4096, phase=Phase.PREFILL))) == 4
    decoding = calls(batch=Batch(sequences=8, length=4096, phase=Phase.DECODE))
    assert [one[1] for one in decoding] == [Call.GEMM_ALL_REDUCE] * 2


@pytest.mark.parametrize("name", ["deepseek-v3", "mixtral-8x7b", "gpt3-175b"])
def test_other_models_have_them_too(name):
    found = calls_of_model(dataclasses.replace(WORKLOAD, model=model(name)), mover=Engine.COPY_ENGINE)
    assert {one.problem.call for one in found} >= {Call.ALL_GATHER_GEMM, Call.GEMM_REDUCE_SCATTER}
    assert {one.problem.mover for one in found} == {Engine.COPY_ENGINE}


def test_one_rank_has_none():
    with pytest.raises(InputError, match="Give --tp above 1"):
        calls(parallelism=Parallelism())
