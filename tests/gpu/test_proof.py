"""Proofs from what was seen: each claim of a plan holds, fails, or cannot be told."""

import pytest

from conccl.core.kinds import CollectiveKind, Memory
from conccl.core.ops import Collective, Copy, Gemm
from conccl.core.pair import Dependence, Pair
from conccl.costs.catalogue import load_device, system_of
from conccl.gpu.driver import Evidence
from conccl.gpu.executor import GpuExecutor
from conccl.gpu.proof import prove
from conccl.strategies.choices import strategy
from conccl.strategies.lower import lower
from gpu.fake_driver import FakeDriver

SYSTEM = system_of(load_device("h200-sxm"), gpus=8)
OUT = Copy(nbytes=1 << 24, destination=Memory.HOST)


def proof(name, evidence=None, *, communication=OUT, ns=None, dependence=Dependence.NONE):
    pair = Pair(compute=Gemm(m=4096, n=4096, k=4096), communication=communication, dependence=dependence)
    plan = lower(pair, strategy(name), system=SYSTEM)
    driver = FakeDriver(evidence=evidence, ns=ns)
    return prove(plan, [GpuExecutor(driver=driver, ranks=(0,)).prepared(plan).run()])


@pytest.mark.parametrize("name", ["serial", "baseline"])
def test_what_claims_nothing_needs_no_proof(name):
    assert proof(name).proved is None


def test_prioritized_needs_communications_ctas_to_be_there_first():
    def seen(last):
        return Evidence(started_ns={"communication.r0": (1000, last)}, compute_from_ns={"compute.r0": 2000})

    assert proof("prioritized:8", seen(1900)).proved is True
    late = proof("prioritized:8", seen(5000))
    assert late.proved is False
    assert "3.0 us after the GEMM" in late.sentence
    assert proof("prioritized:8").proved is False


def test_partitions_need_disjoint_sms():
    def seen(compute, communication):
        return Evidence(
            partition_sms={"compute": frozenset(compute), "communication": frozenset(communication)}
        )

    assert proof("partitioned:16", seen(range(16, 132), range(16))).proved is True
    shared = proof("partitioned:16", seen(range(10, 132), range(16)))
    assert shared.proved is False
    assert "share 6 SMs" in shared.sentence
    assert proof("partitioned:16").proved is False


def test_copy_engines_need_a_path_that_passes_the_occupancy_test():
    assert proof("ce", Evidence(without_sms={"communication.r0": True})).proved is True
    by_sms = proof("ce", Evidence(without_sms={"communication.r0": False}))
    assert by_sms.proved is False
    assert "waits for SMs" in by_sms.sentence
    assert proof("ce").proved is False


def test_planned_collectives_need_it_of_every_copy():
    gather = Collective(kind=CollectiveKind.ALL_GATHER, nbytes=1 << 24, ranks=8)
    assert proof("ce", communication=gather).proved is False


def test_fused_is_not_proved_by_a_gemm_of_several_launches():
    found = proof("fused:4", Evidence(), dependence=Dependence.COMPUTE_FEEDS_COMMUNICATION)
    assert found.proved is False
