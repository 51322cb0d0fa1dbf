"""Choices from tables: the shipped ones, their invariants, and how quick they are."""

import dataclasses
import time
import timeit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conccl.bench.characterize import Characterizer, strategies_of
from conccl.bench.executors import open_bench
from conccl.core.errors import InputError
from conccl.core.kinds import CollectiveKind, Memory
from conccl.core.ops import Collective, Copy, Elementwise, Gemm
from conccl.core.pair import Dependence, Pair
from conccl.costs.catalogue import device_names, load_device, system_of, with_fields
from conccl.strategies.choices import SERIAL, strategy
from conccl.strategies.choosing import choose as choose_from_costs
from conccl.tune.policy import Policy, choose, prepare, strategy_for
from conccl.tune.shapes import modelled
from conccl.tune.tables import find_tables, read_tables, shipped_path

H200 = load_device("h200-sxm")

SHIPPED = Policy(tables=read_tables(shipped_path("h200-sxm")), device=H200)

GATHER = Collective(kind=CollectiveKind.ALL_GATHER, nbytes=1 << 28, ranks=8)


@pytest.fixture(autouse=True)
def _only_shipped(monkeypatch, tmp_path):
    monkeypatch.setenv("CONCCL_TABLES", str(tmp_path))


def pair(compute=None, communication=GATHER, **fields) -> Pair:
    return Pair(compute=compute or Gemm(m=4096, n=7168, k=8192), communication=communication, **fields)


gemms = st.builds(Gemm, m=st.integers(1, 1 << 15), n=st.integers(1, 1 << 15), k=st.integers(1, 1 << 15))
collectives = st.builds(
    Collective,
    kind=st.sampled_from([CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL]),
    nbytes=st.integers(0, 1 << 34),
    ranks=st.integers(2, 64),
)
copies = st.builds(Copy, nbytes=st.integers(0, 1 << 34), source=st.sampled_from([Memory.HOST, Memory.DEVICE]))


@given(gemms, collectives | copies)
def test_a_choice_never_expects_to_lose_to_serial(compute, communication):
    choice = choose(pair(compute, communication), H200)
    assert choice.predicted_ns <= choice.serial_ns
    assert 0.5 <= choice.confidence <= 1.0
    assert choice.strategy == strategy(choice.name)
    assert choice == choose(pair(compute, communication), H200)


@settings(max_examples=30)
@given(gemms, st.integers(1 << 12, 1 << 30))
def test_the_longer_of_both_sides_is_never_undercut_by_much(compute, nbytes):
    """Copy engines are faster than the library in places; computation is not faster in company."""
    alone_ns, _, _ = SHIPPED._computation(compute)
    communication = Copy(nbytes=nbytes, source=Memory.HOST, destination=Memory.DEVICE)
    for time_ns in SHIPPED.predictions(pair(compute, communication)).values():
        assert time_ns > 0.9 * alone_ns


def test_large_host_copies_go_to_copy_engines():
    copy = Copy(nbytes=1 << 26, source=Memory.DEVICE, destination=Memory.HOST)
    choice = choose(pair(communication=copy), H200)
    assert choice.name == "ce"
    assert choice.gain > 0.3


def test_copies_inside_memory_are_not_sent_to_engines_that_cannot():
    copy = Copy(nbytes=1 << 28)
    policy = Policy(tables=find_tables(H200), device=H200)
    assert not {"ce", "ce_trimmed", "nccl_zero"} & policy.predictions(pair(communication=copy)).keys()


def test_dependent_sides_are_left_serial_and_it_is_said_why():
    choice = choose(pair(dependence=Dependence.COMPUTE_FEEDS_COMMUNICATION), H200)
    assert choice.strategy == SERIAL
    assert "needs the other" in choice.reason


def test_what_the_tables_do_not_know_is_left_serial():
    choice = choose(pair(communication=Collective(kind=CollectiveKind.GATHER, nbytes=1 << 20, ranks=8)), H200)
    assert (choice.name, choice.gain) == ("serial", 0.0)
    assert "gather" in choice.reason


def test_a_number_of_ranks_between_the_measured_ones_is_less_sure():
    known = choose(pair(), H200)
    other = choose(pair(communication=dataclasses.replace(GATHER, ranks=6)), H200)
    assert other.name == known.name
    assert other.confidence < known.confidence


def test_computation_need_not_be_a_gemm():
    add = Elementwise(name="add", read_nbytes=1 << 30, written_nbytes=1 << 29, numel=1 << 28)
    assert choose(pair(add), H200).gain > 0.0


@pytest.mark.parametrize("name", device_names())
def test_every_known_device_has_tables_marked_as_simulated(name):
    device = load_device(name)
    tables = find_tables(device)
    assert tables.is_simulated
    assert tables.environment.device == name
    assert choose(pair(), device).serial_ns > 0


def test_a_changed_device_needs_tables_of_its_own():
    changed = with_fields(H200, {"sm_count": 100})
    with pytest.raises(InputError, match="conccl tune tables --device h200-sxm"):
        choose(pair(), changed)


def test_a_choice_takes_under_20_us():
    """Processor time of the best of many short runs: what an idle machine takes."""
    policy, it = Policy(tables=find_tables(H200), device=H200), pair()
    timer = time.process_time
    best_s = min(timeit.repeat(lambda: policy.choose(it), timer=timer, number=20, repeat=300)) / 20
    assert best_s < 20e-6


def test_shapes_that_were_told_are_taken_as_they_are():
    policy = Policy(tables=find_tables(H200), device=H200)
    op = Gemm(m=100, n=5000, k=300)
    shape = modelled(op, H200)
    policy.learn(shape)
    assert policy._computation(op)[0] == shape.time_ns
    prepare([op], H200)
    assert choose(pair(op), H200).serial_ns == policy.choose(pair(op)).serial_ns


SEEN_IN_NO_TABLE = (
    Gemm(m=4096, n=28672, k=4096),
    Gemm(m=256, n=7168, k=8192),
    Gemm(m=16, n=13312, k=16384),
    Gemm(m=8192, n=12288, k=1536),
)


def test_choices_are_close_to_the_best_of_all_strategies():
    """Simulated pairs that the tables were not made of; benchmarks/policy_choices.py has many more."""
    names = ["serial", "baseline", "prioritized:8", "prioritized:32", "partitioned:32", "ce", "nccl_zero"]
    policy = Policy(tables=find_tables(H200), device=H200)
    over = []
    for compute in SEEN_IN_NO_TABLE:
        policy.learn(modelled(compute, H200))
        for nbytes in (1 << 24, 1 << 27):
            for communication in (
                dataclasses.replace(GATHER, nbytes=nbytes),
                Copy(nbytes=nbytes >> 3, source=Memory.HOST),
            ):
                it = pair(compute, communication)
                choice = policy.choose(it)
                found = Characterizer(
                    bench=open_bench("sim", device=H200, gpus=8),
                    system=system_of(H200, gpus=8),
                    strategies=strategies_of(list(dict.fromkeys([*names, choice.name]))),
                ).pair(it)
                times = {n: r.overlap.concurrent_ns for n, r in found.strategies.items() if r.overlap}
                over.append(times[choice.name] / min(times.values()) - 1)
                assert times[choice.name] <= 1.02 * times["serial"]
    assert sum(over) / len(over) < 0.03
    assert max(over) < 0.10


def test_what_characterize_runs_as_policy_is_the_tables_choice():
    system = system_of(H200, gpus=8)
    known = Policy(tables=find_tables(H200), device=H200)
    known.learn(modelled(pair().compute, H200))
    assert strategy_for(pair(), system) == known.choose(pair()).strategy


@pytest.mark.parametrize(
    ("device", "fields"),
    [
        (with_fields(H200, {"sm_count": 100}), {}),
        (H200, {"dependence": Dependence.COMPUTE_FEEDS_COMMUNICATION}),
        (H200, {"communication": Collective(kind=CollectiveKind.GATHER, nbytes=1 << 26, ranks=8)}),
        (H200, {"communication": dataclasses.replace(GATHER, ranks=16)}),
    ],
)
def test_where_tables_say_nothing_cost_models_choose(device, fields):
    system = system_of(device, gpus=16)
    assert strategy_for(pair(**fields), system) == choose_from_costs(pair(**fields), system)
