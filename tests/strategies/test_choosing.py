"""The choice from costs: never slower than serial where it is run, near the best, and by name."""

import random

import pytest

from conccl.bench.characterize import strategies_of
from conccl.bench.sweep import Sweep, Variation
from conccl.core.kinds import CollectiveKind, Memory
from conccl.core.ops import Collective, Copy, Gemm
from conccl.core.pair import Dependence, Pair
from conccl.costs.catalogue import load_device, system_of, with_fields
from conccl.strategies.choices import SERIAL, name_of, strategy
from conccl.strategies.choosing import choose, estimates

NAMES = ("serial", "baseline", "prioritized", "partitioned", "ce", "ce_trimmed", "policy")


def drawn_pairs(count: int = 24) -> list[Pair]:
    draw = random.Random(7)
    kinds = [
        CollectiveKind.ALL_GATHER,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_REDUCE,
    ]
    ends = [(Memory.DEVICE, Memory.HOST), (Memory.HOST, Memory.DEVICE), (Memory.DEVICE, Memory.DEVICE)]
    pairs = []
    for index in range(count):
        gemm = Gemm(
            m=2 ** draw.randint(4, 14), n=2 ** draw.randint(8, 14), k=2 ** draw.randint(8, 14)
        )  # fmt: skip
        if index % 3:
            moved: Collective | Copy = Collective(
                kind=draw.choice(kinds), nbytes=2 ** draw.randint(14, 30), ranks=draw.choice([2, 4, 8])
            )
        else:
            source, destination = draw.choice(ends)
            moved = Copy(nbytes=2 ** draw.randint(16, 29), source=source, destination=destination)
        pairs.append(Pair(compute=gemm, communication=moved))
    return pairs


@pytest.mark.parametrize(
    ("device", "most"), [("h200-sxm", 1.005), ("mi300x", 1.005), ("a100-sxm", 1.005), ("t3-80cu", 1.05)]
)
def test_what_is_chosen_is_no_slower_than_serial_and_near_the_best(device, most):
    sweep = Sweep(executor="sim", gpus=8, strategies=strategies_of(NAMES))
    found = sweep.run(Variation(device=load_device(device)), drawn_pairs())
    behind = []
    for pair in found.pairs:
        times = {name: result.overlap.concurrent_ns for name, result in pair.strategies.items()}
        assert times["policy"] <= most * times["serial"], pair.strategies["policy"].chosen
        behind.append(times["policy"] / min(times.values()))
    assert sum(behind) / len(behind) < 1.05


def test_nothing_is_gained_by_overlapping_what_is_tiny():
    pair = Pair(
        compute=Gemm(m=8192, n=8192, k=8192),
        communication=Collective(kind=CollectiveKind.ALL_GATHER, nbytes=64, ranks=8),
    )
    assert choose(pair, system_of(load_device("h200-sxm"), gpus=8)) == SERIAL


def test_without_copy_engines_sms_do_it():
    device = with_fields(load_device("h200-sxm"), {"copy_engines.count": 0})
    pair = Pair(
        compute=Gemm(m=8192, n=8192, k=8192),
        communication=Collective(kind=CollectiveKind.ALL_GATHER, nbytes=1 << 29, ranks=8),
    )
    system = system_of(device, gpus=8)
    assert "ce" not in [name_of(one.strategy) for one in estimates(pair, system)]
    assert name_of(choose(pair, system)).startswith(("prioritized:", "partitioned:"))


def test_a_dependent_pair_is_cut_into_chunks():
    pair = Pair(
        compute=Gemm(m=8192, n=8192, k=8192),
        communication=Collective(kind=CollectiveKind.ALL_GATHER, nbytes=1 << 28, ranks=8),
        dependence=Dependence.COMMUNICATION_FEEDS_COMPUTE,
    )
    assert name_of(choose(pair, system_of(load_device("h200-sxm"), gpus=8))).startswith("chunked")


@pytest.mark.parametrize(
    "name",
    ["serial", "baseline", "partitioned:16", "prioritized:1", "ce", "ce_trimmed:16", "chunked:2", "fused:64",
     "nccl_zero", "prioritized_partitioned"],
)  # fmt: skip
def test_a_strategy_says_its_name(name):
    assert name_of(strategy(name)) == name
