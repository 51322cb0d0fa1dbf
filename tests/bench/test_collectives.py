"""Sizes, counts and bandwidths as nccl-tests counts them."""

import pytest

from conccl.bench.collectives import (
    CollectiveRow,
    Timing,
    average_bus_bandwidth,
    elements,
    formula,
    size_of,
    sizes,
)
from conccl.core.errors import InputError
from conccl.core.kinds import CollectiveKind as Kind


def test_sizes_grow_by_a_factor_or_a_step():
    assert list(sizes(least=1024, most=10_000, factor=2, step=None)) == [1024, 2048, 4096, 8192]
    assert list(sizes(least=8, most=32, factor=None, step=8)) == [8, 16, 24, 32]
    assert list(sizes(least=0, most=4, factor=2, step=None)) == [0, 2, 4]
    assert list(sizes(least=5, most=5, factor=3, step=None)) == [5]


@pytest.mark.parametrize(
    "given",
    [
        {"least": 2, "most": 1, "factor": 2, "step": None},
        {"least": 1, "most": 2, "factor": 1, "step": None},
        {"least": 1, "most": 2, "factor": 2, "step": 0},
    ],
)
def test_sizes_that_would_never_end_are_refused(given):
    with pytest.raises(InputError):
        list(sizes(**given))


@pytest.mark.parametrize("kind", list(Kind)[:8])
def test_what_fits_is_never_more_than_was_asked_for(kind):
    for nbytes in (0, 7, 8, 1000, 1 << 20):
        count = elements(kind, nbytes, ranks=3, element_nbytes=4)
        assert nbytes - 12 < size_of(kind, count, ranks=3, element_nbytes=4) <= nbytes


def row(kind, ranks, nbytes, *times_ns):
    timing = Timing(times_ns=times_ns, nwrong=0)
    return CollectiveRow(
        kind=kind,
        ranks=ranks,
        nbytes=nbytes,
        count=nbytes,
        dtype="uint8",
        redop="",
        root=-1,
        out_of_place=timing,
        in_place=None,
    )


@pytest.mark.parametrize(
    ("kind", "share"), [(Kind.ALL_REDUCE, 1.5), (Kind.ALL_GATHER, 0.75), (Kind.BROADCAST, 1.0)]
)
def test_bus_bandwidth_is_what_the_formula_says(kind, share):
    one = row(kind, 4, 4000, 1000, 3000)
    assert one.bandwidths(one.out_of_place) == pytest.approx((2e9, 2e9 * share))
    assert average_bus_bandwidth([one]) == pytest.approx(2e9 * share)
    if share != 1:
        assert f"algbw x {share:g} for n = 4" in formula(kind, 4)


def test_nothing_has_no_mean():
    assert average_bus_bandwidth([]) is None
