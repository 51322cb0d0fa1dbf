import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.errors import InputError
from conccl.core.ops import Collective, CollectiveKind
from conccl.costs.catalogue import device_names, load_device, with_fields
from conccl.costs.collective import Algorithm, collective_cost, collective_costs, collective_kernels

H200 = load_device("h200-sxm")
KINDS = [kind for kind in CollectiveKind if kind is not CollectiveKind.BARRIER]


def op(kind: str, nbytes: int, ranks: int) -> Collective:
    return Collective(kind=CollectiveKind(kind), nbytes=nbytes, ranks=ranks)


@pytest.mark.parametrize(
    ("kind", "nbytes", "ranks", "us"),
    [
        # NCCL 2.29.2 on H200, aiconfigurator's table
        ("all_gather", 512 << 20, 8, 1395),
        ("all_gather", 64 << 10, 8, 13.1),
        ("reduce_scatter", 64 << 20, 4, 189),
        ("all_reduce", 512 << 20, 8, 2040),
        ("all_reduce", 1 << 20, 2, 14.3),
        ("all_to_all", 256 << 20, 8, 771),
        ("all_to_all", 1 << 20, 8, 16.2),
    ],
)
def test_known_times_on_h200(kind, nbytes, ranks, us):
    assert collective_cost(op(kind, nbytes, ranks), H200).time_ns / 1e3 == pytest.approx(us, rel=0.12)


@pytest.mark.parametrize("kind", KINDS)
@given(
    nbytes=st.integers(0, 1 << 32), ranks=st.sampled_from([2, 3, 4, 8, 16, 64]), grow=st.integers(1, 1 << 28)
)
def test_more_bytes_never_take_less(kind, nbytes, ranks, grow):
    small = collective_cost(op(kind, nbytes, ranks), H200)
    large = collective_cost(op(kind, nbytes + grow, ranks), H200)
    assert large.time_ns >= small.time_ns - 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_slower_link_is_never_faster(kind):
    slow = with_fields(H200, {"peer_link.out_bandwidth": 100e9})
    for nbytes in (1 << 10, 1 << 20, 1 << 30):
        assert (
            collective_cost(op(kind, nbytes, 8), slow).time_ns
            >= collective_cost(op(kind, nbytes, 8), H200).time_ns
        )


def test_the_switch_adds_where_it_can_and_the_node_is_whole():
    large = op("all_reduce", 1 << 30, 8)
    assert collective_cost(large, H200).algorithm is Algorithm.IN_SWITCH
    assert collective_cost(large, load_device("a100-sxm")).algorithm is Algorithm.RING
    assert collective_cost(op("all_reduce", 1 << 30, 4), H200).algorithm is Algorithm.RING


def test_copy_engines_do_not_add_unless_they_can():
    reduce = op("reduce_scatter", 1 << 26, 8)
    assert Algorithm.COPY_ENGINE not in {cost.algorithm for cost in collective_costs(reduce, H200)}
    adding = with_fields(H200, {"copy_engines.can_reduce": True})
    cost = collective_cost(reduce, adding, algorithm=Algorithm.COPY_ENGINE)
    assert cost.ctas == 0
    gather = collective_cost(op("all_gather", 1 << 26, 8), H200, algorithm=Algorithm.COPY_ENGINE)
    assert gather.link_nbytes == (1 << 26) * 7 / 8


def test_more_engines_are_never_slower():
    for count in (1, 2, 4, 8):
        few = with_fields(load_device("mi300x"), {"copy_engines.count": count})
        more = with_fields(few, {"copy_engines.count": 2 * count})
        times = [
            collective_cost(op("all_gather", 1 << 24, 8), device, algorithm=Algorithm.COPY_ENGINE).time_ns
            for device in (few, more)
        ]
        assert times[1] <= times[0]


def test_between_nodes_the_rails_set_the_pace():
    nbytes = 1 << 30
    inside = collective_cost(op("all_to_all", nbytes, 8), H200)
    outside = collective_cost(op("all_to_all", nbytes, 16), H200)
    # 8 of 16 peers sit behind a rail of 50 GB/s, of which 90 % is reached
    assert outside.time_ns > nbytes / 2 / 45e9 * 1e9
    assert outside.uncertainty > inside.uncertainty
    lone = collective_cost(op("all_reduce", nbytes, 16), H200, ranks_per_node=1)
    full = collective_cost(op("all_reduce", nbytes, 16), H200)
    assert lone.time_ns > 4 * full.time_ns


def test_small_all_reduce_over_many_nodes_takes_a_tree():
    cost = collective_cost(op("all_reduce", 1 << 10, 1024), H200)
    assert cost.algorithm is Algorithm.TREE


def test_one_rank_has_nothing_to_do():
    assert collective_costs(op("all_reduce", 1 << 20, 1), H200) == ()
    assert collective_kernels(op("all_reduce", 1 << 20, 1), H200) == ()


@pytest.mark.parametrize("name", device_names())
@pytest.mark.parametrize("kind", KINDS)
def test_a_ranks_kernel_takes_as_long_as_its_collective(name, kind):
    device = load_device(name)
    for nbytes in (1 << 8, 1 << 20, 1 << 28):
        collective = op(kind, nbytes, min(4, device.gpus_per_node))
        (kernel,) = collective_kernels(collective, device)
        assert kernel.isolated_ns == pytest.approx(collective_cost(collective, device).time_ns, rel=0.01)
        assert kernel.ctas_per_sm == 1


def test_what_cannot_be_done_says_why():
    with pytest.raises(InputError, match="has no rail"):
        collective_cost(op("all_reduce", 1, 64), load_device("t3-80cu"))
    with pytest.raises(InputError, match="no way to do reduce_scatter among 8 by copy_engine"):
        collective_cost(op("reduce_scatter", 1, 8), H200, algorithm=Algorithm.COPY_ENGINE)
    with pytest.raises(InputError, match="16 ranks a node"):
        collective_cost(op("all_reduce", 1, 64), H200, ranks_per_node=16)
