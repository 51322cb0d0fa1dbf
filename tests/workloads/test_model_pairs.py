"""Which communication of a model may run beside which computation."""

from __future__ import annotations

import pytest

from conccl.core.errors import InputError
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Gemm
from conccl.core.pair import Dependence
from conccl.workloads.layers import Batch, Phase
from conccl.workloads.model_pairs import pairs_of_model
from conccl.workloads.models import model
from conccl.workloads.parallel import Parallelism
from conccl.workloads.steps import Workload


def workload(name: str, phase: Phase = Phase.TRAINING, **degrees: int) -> Workload:
    batch = Batch(sequences=1, length=4096, phase=phase)
    return Workload(model=model(name), parallelism=Parallelism(**degrees), batch=batch)


def test_sharded_training_gathers_forward_and_scatters_backward() -> None:
    pairs = pairs_of_model(workload("llama3-70b", tp=8, fsdp=8))
    kinds = [pair.communication.kind for pair in pairs if isinstance(pair.communication, Collective)]
    assert kinds.count(CollectiveKind.ALL_GATHER) == 4
    assert kinds.count(CollectiveKind.REDUCE_SCATTER) == 8
    assert all(isinstance(pair.compute, Gemm) for pair in pairs)
    assert {pair.dependence for pair in pairs} == {Dependence.NONE}


def test_experts_exchange_beside_the_other_microbatch() -> None:
    pairs = pairs_of_model(workload("mixtral-8x7b", phase=Phase.PREFILL, ep=8, dp=8))
    kinds = {pair.communication.kind for pair in pairs if isinstance(pair.communication, Collective)}
    assert kinds == {CollectiveKind.ALL_TO_ALL}


def test_equal_pairs_are_named_once() -> None:
    pairs = pairs_of_model(workload("deepseek-v3", ep=8, fsdp=8))
    assert len(pairs) == len(set(pairs))


def test_tensor_parallelism_alone_has_no_independent_pairs() -> None:
    with pytest.raises(InputError, match="fused operators"):
        pairs_of_model(workload("llama3-70b", tp=8))
