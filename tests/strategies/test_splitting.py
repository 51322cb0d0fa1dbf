"""A chain in parts: each part's communication runs beside the other part's compute."""

import pytest

from conccl.core.errors import InputError
from conccl.core.hardware import System
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Gemm
from conccl.core.pair import Dependence, Pair
from conccl.core.plan import Engine
from conccl.sim.executor import SimExecutor
from conccl.strategies.choices import Path
from conccl.strategies.splitting import split_chain
from made_kernels import device, made_collective, tiled_gemms

SYSTEM = System(device=device(), gpus=4)
PAIR = Pair(
    compute=Gemm(m=5120, n=2560, k=1024),
    communication=Collective(kind=CollectiveKind.ALL_GATHER, nbytes=32 << 20, ranks=4),
    dependence=Dependence.COMPUTE_FEEDS_COMMUNICATION,
)


def span_ns(parts: int, **fields) -> int:
    plan = split_chain([PAIR] * 4, parts=parts, system=SYSTEM, **fields)
    executor = SimExecutor(system=SYSTEM, kernels_of=tiled_gemms, collective_cost=made_collective)
    return executor.run(plan).span_ns


def test_parts_cover_rows_and_bytes():
    plan = split_chain([PAIR], parts=3, system=SYSTEM)
    tasks = plan.for_rank(0)
    assert sum(task.op.m for task in tasks if isinstance(task.op, Gemm)) == 5120
    assert sum(task.op.nbytes for task in tasks if isinstance(task.op, Collective)) == 32 << 20


def test_a_part_waits_for_its_own_communication_only():
    plan = split_chain([PAIR, PAIR], parts=2, system=SYSTEM)
    assert [one.task for one in plan.task("compute.1.0.r0").after] == ["communication.0.0.r0"]
    assert [one.task for one in plan.task("compute.1.1.r0").after] == ["communication.0.1.r0"]


def test_two_parts_hide_communication_that_one_does_not():
    engines = {"engine": Engine.COPY_ENGINE, "path": Path.PLANNED}
    assert span_ns(2, **engines) < 0.8 * span_ns(1, **engines)
    assert span_ns(2, sms=10) < 0.9 * span_ns(1, sms=10)


def test_what_is_no_chain_is_refused():
    with pytest.raises(InputError, match="feed their communication"):
        split_chain([Pair(compute=PAIR.compute, communication=PAIR.communication)], parts=2, system=SYSTEM)
    with pytest.raises(InputError, match="parts"):
        split_chain([PAIR], parts=0, system=SYSTEM)
    thin = Pair(
        compute=Gemm(m=1, n=8, k=8),
        communication=PAIR.communication,
        dependence=Dependence.COMPUTE_FEEDS_COMMUNICATION,
    )
    with pytest.raises(InputError, match="fewer parts"):
        split_chain([thin], parts=2, system=SYSTEM)
