import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.metrics import Overlap, PairClass, algbw, bus_factor, busbw, fraction_of_ideal
from conccl.core.ops import CollectiveKind

K = CollectiveKind
times = st.integers(0, 1 << 40)


def overlap(compute_ns: int, communication_ns: int, concurrent_ns: int = 0) -> Overlap:
    return Overlap(compute_ns=compute_ns, communication_ns=communication_ns, concurrent_ns=concurrent_ns)


def test_serial_is_0_and_ideal_is_1():
    assert overlap(100, 50, 150).fraction_of_ideal == 0
    assert overlap(100, 50, 100).fraction_of_ideal == 1
    assert overlap(100, 50, 180).fraction_of_ideal < 0


def test_conccl_s_baseline():
    """21 % of ideal stands beside a speedup of 1.13 where the ideal is about 1.62 (arXiv:2412.14335)."""
    assert fraction_of_ideal(speedup=1.13, ideal_speedup=1.62) == pytest.approx(0.21, abs=0.005)


def test_where_little_can_be_gained_there_is_a_speedup_but_no_fraction():
    nearly = overlap(1000, 49, 1010)
    assert nearly.ideal_speedup == pytest.approx(1.049)
    assert nearly.fraction_of_ideal is None
    assert nearly.speedup == pytest.approx(1.0386, abs=1e-4)
    assert overlap(1000, 50, 1010).fraction_of_ideal is not None


def test_empty_sides_have_no_meaning_and_raise_nothing():
    assert overlap(0, 0).ideal_speedup is None
    assert overlap(0, 0).speedup is None
    assert overlap(0, 0).fraction_of_ideal is None
    assert overlap(100, 100, 0).fraction_of_ideal is None
    assert overlap(100, 0, 100).ideal_speedup == 1


@pytest.mark.parametrize(
    ("compute", "communication", "expected"),
    [
        (1151, 1000, PairClass.G_LONG),
        (1150, 1000, PairClass.GC_EQUAL),
        (1000, 1150, PairClass.GC_EQUAL),
        (1000, 1151, PairClass.C_LONG),
        (0, 0, PairClass.GC_EQUAL),
    ],
)
def test_classes(compute: int, communication: int, expected: PairClass):
    assert overlap(compute, communication).pair_class is expected


@given(times, times, times)
def test_ideal_speedup_lies_between_1_and_2(compute: int, communication: int, concurrent: int):
    one = overlap(compute, communication, concurrent)
    if one.ideal_ns:
        assert 1 <= one.ideal_speedup <= 2
    assert one.ideal_ns <= one.serial_ns <= 2 * one.ideal_ns


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        (K.ALL_REDUCE, 2 * 7 / 8),
        (K.ALL_GATHER, 7 / 8),
        (K.REDUCE_SCATTER, 7 / 8),
        (K.ALL_TO_ALL, 7 / 8),
        (K.GATHER, 7 / 8),
        (K.SCATTER, 7 / 8),
        (K.BROADCAST, 1),
        (K.REDUCE, 1),
        (K.SEND, 1),
        (K.RECV, 1),
        (K.BARRIER, 1),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(kind: CollectiveKind, factor: float):
    assert bus_factor(kind=kind, ranks=8) == pytest.approx(factor)
    assert bus_factor(kind=kind, ranks=1) == 1


def test_bandwidths():
    assert algbw(nbytes=1_000_000, time_ns=1000) == 1e12
    assert busbw(kind=K.ALL_REDUCE, nbytes=1_000_000, ranks=4, time_ns=1000) == pytest.approx(1.5e12)
    assert algbw(nbytes=8, time_ns=0) is None
    assert busbw(kind=K.ALL_REDUCE, nbytes=8, ranks=4, time_ns=0) is None
