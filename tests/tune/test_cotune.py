"""Co-tuning on the simulator: as good as trying everything, from a tenth of it."""

import dataclasses

import pytest

from conccl.core.errors import InputError
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Copy, Elementwise, Gemm
from conccl.core.pair import Dependence, Pair
from conccl.core.plan import Side
from conccl.costs.catalogue import load_device, system_of
from conccl.sim.executor import SimExecutor
from conccl.tune import cotune as module
from conccl.tune.cotune import Setting, axes, cotune, exhaust, plan_of

DEVICE = load_device("h200-sxm")
SYSTEM = system_of(DEVICE, gpus=2)


def executor_of(kernels_of):
    return SimExecutor(system=SYSTEM, kernels_of=kernels_of)


def pair(dependence=Dependence.NONE, **fields) -> Pair:
    op = Collective(kind=CollectiveKind.REDUCE_SCATTER, nbytes=2048 * 4096 * 2, ranks=2)
    return Pair(
        **{"compute": Gemm(m=2048, n=4096, k=4096), "communication": op, "dependence": dependence, **fields}
    )


@pytest.mark.parametrize("dependence", Dependence)
def test_it_comes_close_to_the_best_of_all_from_a_tenth_of_the_runs(dependence, monkeypatch):
    monkeypatch.setattr(module, "TILES", 5)
    found = cotune(pair(dependence), system=SYSTEM, executor_of=executor_of)
    best = exhaust(pair(dependence), system=SYSTEM, executor_of=executor_of)
    assert found.space == best.space == best.measured
    assert found.measured <= found.space // 10
    assert found.time_ns <= 1.02 * best.time_ns
    assert best.time_ns <= best.apart_ns


def test_pieces_keep_all_bytes_and_their_order():
    plan = plan_of(
        pair(), Setting(communication_sms=8, pieces=4, tile=(128, 256), partitioned=False), system=SYSTEM
    )
    mine = [task for task in plan.for_rank(0) if task.side is Side.COMMUNICATION]
    assert len(mine) == 4
    assert sum(task.op.nbytes for task in mine) == pair().communication.nbytes
    assert all(task.sms == 8 for task in mine)


def test_dependent_pairs_are_cut_with_their_gemm():
    setting = Setting(communication_sms=8, pieces=4, tile=(128, 256), partitioned=True)
    plan = plan_of(pair(Dependence.COMPUTE_FEEDS_COMMUNICATION), setting, system=SYSTEM)
    assert sum(1 for task in plan.for_rank(0) if task.side is Side.COMPUTE) == 4


def test_the_best_tile_beside_communication_need_not_be_the_best_alone(monkeypatch):
    monkeypatch.setattr(module, "TILES", 4)
    it = dataclasses.replace(pair(), communication=Copy(nbytes=1 << 25))
    found = exhaust(it, system=SYSTEM, executor_of=executor_of)
    assert found.time_ns < found.apart_ns


def test_sizes_fit_the_device():
    sizes, pieces, tiles = axes(pair(), DEVICE)
    assert all(size % DEVICE.sm_group == 0 for size in sizes)
    assert pieces[0] == 1
    assert len(set(tiles)) == len(tiles) == module.TILES
    assert axes(pair(compute=Gemm(m=3, n=4096, k=4096)), DEVICE)[1] == (1, 2)


def test_what_has_no_tile_is_refused():
    add = Elementwise(name="add", read_nbytes=8, written_nbytes=4)
    with pytest.raises(InputError, match="Elementwise"):
        cotune(pair(compute=add), system=SYSTEM, executor_of=executor_of)
    with pytest.raises(InputError, match="no tiles"):
        cotune(pair(compute=Gemm(m=1, n=4096, k=4097)), system=SYSTEM, executor_of=executor_of)
