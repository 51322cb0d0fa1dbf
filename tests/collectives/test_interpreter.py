import numpy as np
import pytest

from conccl.collectives.choose import fragment_of
from conccl.collectives.interpreter import allocate, interpret, run
from conccl.collectives.layout import layout_of
from conccl.core.errors import PlanError
from conccl.core.ops import Collective, CollectiveKind, Gemm, Move, Multicast, Region, Swap
from conccl.core.plan import Buffer, Dependency, Part, Plan, Task


def at(offset: int, nbytes: int = 2, *, rank: int = 0, buffer: str = "x") -> Region:
    return Region(rank=rank, buffer=buffer, offset=offset, nbytes=nbytes)


def carried_out(*tasks: Task, seed: int | None = None) -> list[int]:
    plan = Plan(tasks=tasks, buffers=(Buffer(rank=0, name="x", nbytes=8),))
    memory = {(0, "x"): np.arange(8, dtype=np.uint8)}
    run(plan, memory, seed=seed)
    return memory[0, "x"].tolist()


def test_moves_multicasts_and_swaps():
    assert carried_out(Task(id="m", op=Move(source=at(0), destination=at(4)))) == [0, 1, 2, 3, 0, 1, 6, 7]
    both = Multicast(source=at(0), destinations=(at(2), at(6)))
    assert carried_out(Task(id="m", op=both)) == [0, 1, 0, 1, 4, 5, 0, 1]
    assert carried_out(Task(id="s", op=Swap(first=at(0), second=at(6)))) == [6, 7, 2, 3, 4, 5, 0, 1]


def test_parts_move_one_by_one():
    """Another task comes between the halves of a move: it sees the first and the second sees it."""
    halves = (Part(start=0, stop=1), Part(start=1, stop=2))
    first = Task(
        id="first",
        op=Move(source=at(0), destination=at(4)),
        parts=halves,
        after=(Dependency(task="between", needed_by=1),),
    )
    between = Task(
        id="between",
        op=Move(source=at(4, 1), destination=at(1, 1)),
        lane="b",
        after=(Dependency(task="first", part=0),),
    )
    for seed in (None, 0, 1):
        assert carried_out(first, between, seed=seed) == [0, 0, 2, 3, 0, 0, 6, 7]


def test_seeds_make_different_orders_and_the_same_seed_the_same():
    racing = [
        Task(id=f"t{k}", op=Move(source=at(k, 1), destination=at(7, 1)), lane=f"l{k}") for k in range(6)
    ]
    results = [carried_out(*racing, seed=seed)[7] for seed in range(20)]
    assert len(set(results)) > 1
    assert results == [carried_out(*racing, seed=seed)[7] for seed in range(20)]


def test_what_cannot_be_interpreted_is_said():
    with pytest.raises(PlanError, match="'g' is a Gemm"):
        carried_out(Task(id="g", op=Gemm(m=1, n=1, k=1)))
    with pytest.raises(PlanError, match=r"bytes \[7, 9\) of buffer 'x' of rank 0: it has 8 bytes"):
        carried_out(Task(id="m", op=Move(source=at(7), destination=at(0))))
    with pytest.raises(PlanError, match="'y' of rank 0: it does not exist"):
        carried_out(Task(id="m", op=Move(source=at(0, buffer="y"), destination=at(0))))


def test_outputs_start_as_garbage():
    layout = layout_of(Collective(kind=CollectiveKind.ALL_GATHER, nbytes=8, ranks=2))
    plan = fragment_of(layout)
    assert {int(byte) for data in allocate(plan).values() for byte in data} == {0xA5}
    half = Plan(tasks=(), buffers=plan.buffers)
    inputs = [np.zeros(4, dtype=np.uint8)] * 2
    assert interpret(half, layout=layout, inputs=inputs)[0].tolist() == [0xA5] * 8
