"""Contended times: never less than isolated ones, more where SMs are short."""

import pytest

from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Elementwise, Gemm
from conccl.costs.catalogue import load_device, system_of
from conccl.strategies.heuristics import alone_ns
from conccl.tune.contended import contended_communication_ns, contended_compute_ns

SYSTEM = system_of(load_device("h200-sxm"), gpus=8)


@pytest.mark.parametrize(
    "op",
    [
        Gemm(m=4096, n=8192, k=8192),
        Gemm(m=16, n=8192, k=8192),
        Elementwise(name="a", read_nbytes=1 << 28, written_nbytes=1 << 28),
    ],
)
def test_computation_beside_an_all_gather_is_not_faster(op):
    time_ns = contended_compute_ns(op, system=SYSTEM)
    assert time_ns >= 0.99 * alone_ns(op, SYSTEM.device)
    if isinstance(op, Gemm) and op.m == 4096:
        assert time_ns > 1.1 * alone_ns(op, SYSTEM.device)


@pytest.mark.parametrize("kind", [CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE])
@pytest.mark.parametrize("nbytes", [1 << 16, 1 << 28])
def test_a_collective_beside_a_gemm_is_not_faster(kind, nbytes):
    op = Collective(kind=kind, nbytes=nbytes, ranks=8)
    assert contended_communication_ns(op, system=SYSTEM) >= 0.99 * alone_ns(op, SYSTEM.device)
