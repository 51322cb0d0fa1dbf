import pytest

from conccl.collectives.catalogue import algorithms
from conccl.collectives.choose import by_size, cheapest, choose, fragment
from conccl.collectives.layout import Place, layout_of
from conccl.collectives.transfer import Command, Direction, Reach, Transfer
from conccl.core.errors import InputError, UnknownNameError
from conccl.core.ops import Collective, CollectiveKind
from conccl.core.plan import Engine, Plan
from conccl.core.units import KIB, MIB

K = CollectiveKind


def picked(kind: CollectiveKind, nbytes: int, *, ranks: int = 8, place=Place.OUT_OF_PLACE, **transfer) -> str:
    layout = layout_of(Collective(kind=kind, nbytes=nbytes, ranks=ranks), place=place)
    return choose(layout, transfer=Transfer(**transfer)).algorithm.name


def test_near_names_are_offered_for_one_that_does_not_exist():
    with pytest.raises(UnknownNameError, match=r"unknown all_reduce algorithm 'rings'. Did you mean ring"):
        fragment(Collective(kind=K.ALL_REDUCE, nbytes=8, ranks=2), algorithm="rings")


@pytest.mark.parametrize("kind", CollectiveKind)
def test_every_collective_has_algorithms_and_each_says_what_it_is(kind: CollectiveKind):
    assert next(iter(algorithms(kind))) == "direct"
    for name, one in algorithms(kind).items():
        assert (one.name, one.kind) == (name, kind)
        assert len(one.summary) > 10


@pytest.mark.parametrize(
    ("kind", "nbytes", "expected"),
    [
        (K.ALL_GATHER, 128 * KIB, "b2b"),
        (K.ALL_GATHER, 128 * KIB + 8, "direct"),
        (K.ALL_TO_ALL, 32 * KIB, "b2b"),
        (K.ALL_TO_ALL, 64 * KIB, "direct"),
        (K.ALL_REDUCE, MIB, "one_shot"),
        (K.ALL_REDUCE, 2 * MIB, "direct"),
        (K.REDUCE_SCATTER, 8, "direct"),
        (K.BROADCAST, 8, "direct"),
        (K.BROADCAST, 64 * MIB, "scatter_all_gather"),
        (K.REDUCE, 64 * MIB, "reduce_scatter_gather"),
        (K.BARRIER, 0, "direct"),
    ],
)
def test_the_rule_of_thumb_goes_by_size(kind: CollectiveKind, nbytes: int, expected: str):
    assert picked(kind, nbytes) == expected


def test_commands_are_used_only_where_engines_have_them():
    both = frozenset(Command)
    assert picked(K.ALL_GATHER, 256 * KIB) == "direct"
    assert picked(K.ALL_GATHER, 256 * KIB, commands=both) == "bcst"
    assert picked(K.ALL_GATHER, 256 * KIB, commands=both, engine=Engine.SM) == "direct"
    assert picked(K.ALL_TO_ALL, MIB, commands=both, place=Place.IN_PLACE) == "swap"
    assert picked(K.ALL_TO_ALL, MIB, commands=both) == "direct"


def test_several_nodes_are_crossed_by_rail():
    assert picked(K.ALL_REDUCE, 64 * MIB, ranks=16, gpus_per_node=8) == "hierarchical"
    assert picked(K.ALL_REDUCE, 64 * MIB, ranks=16) == "direct"
    assert picked(K.ALL_REDUCE, 64 * MIB, ranks=8, gpus_per_node=8) == "direct"


def test_ranks_that_do_not_reach_each_other_go_by_way_of_the_host():
    assert picked(K.ALL_GATHER, 64 * MIB, reach=Reach.HOST) == "staged"
    assert picked(K.ALL_REDUCE, 8, reach=Reach.HOST) == "staged_one_shot"
    assert picked(K.ALL_REDUCE, 64 * MIB, reach=Reach.HOST) == "staged"
    with pytest.raises(InputError, match="run it out of place"):
        picked(K.ALL_TO_ALL, 64, reach=Reach.HOST, place=Place.IN_PLACE)


@pytest.mark.parametrize(
    ("kind", "algorithm", "transfer", "message"),
    [
        (K.ALL_GATHER, "hierarchical", {}, r"give Transfer\(gpus_per_node"),
        (K.ALL_GATHER, "hierarchical", {"gpus_per_node": 3}, "8 ranks do not fill nodes of 3"),
        (K.ALL_GATHER, "bcst", {"engine": Engine.SM}, "multicast is a command of copy engines"),
        (K.ALL_GATHER, "bcst", {"direction": Direction.PULL}, "use Direction.PUSH"),
        (K.ALL_TO_ALL, "swap", {}, "does not run out of place; run it in place"),
    ],
)
def test_what_an_algorithm_needs_is_said(kind, algorithm, transfer, message):
    collective = Collective(kind=kind, nbytes=64, ranks=8)
    with pytest.raises(InputError, match=message):
        fragment(collective, algorithm=algorithm, transfer=Transfer(**transfer))


def test_a_cost_decides_where_one_is_given():
    layout = layout_of(Collective(kind=K.ALL_REDUCE, nbytes=8 * MIB, ranks=8))

    def moved(plan: Plan) -> float:
        return sum(task.op.nbytes for task in plan.tasks)

    def tasks(plan: Plan) -> float:
        return len(plan.tasks)

    assert choose(layout, chooser=cheapest(tasks)).algorithm.name == "recursive_doubling"
    least = choose(layout, chooser=cheapest(moved))
    assert least.algorithm.name not in ("one_shot", "recursive_doubling")
    assert least.reason.startswith("costs least of ")
    assert fragment(layout.collective, chooser=cheapest(tasks)).label == "all_reduce: recursive_doubling"


def test_a_choice_says_why():
    layout = layout_of(Collective(kind=K.ALL_REDUCE, nbytes=8, ranks=8))
    assert choose(layout).reason == "small: one step instead of two"
    assert choose(layout, algorithm="ring").reason == "asked for by name"
    assert by_size(layout, Transfer(), [algorithms(K.ALL_REDUCE)["ring"]]).algorithm.name == "ring"
