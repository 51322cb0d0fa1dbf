import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core import units
from conccl.core.errors import InputError
from conccl.core.units import (
    GIB,
    KIB,
    MIB,
    format_bandwidth,
    format_bytes,
    format_ns,
    format_share,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("64", 64),
        ("64K", 64 * KIB),
        ("64k", 64 * KIB),
        ("64KB", 64 * KIB),
        ("64KiB", 64 * KIB),
        ("1.5 GiB", 3 * GIB // 2),
        (" 2 M ", 2 * MIB),
        ("1T", 1024 * GIB),
        ("12B", 12),
    ],
)
def test_sizes_are_read_as_nccl_tests_reads_them(text: str, nbytes: int):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "K", "-1", "1e6", "1,000", "12X", "1 000", "0x10", "NaN", "1.M"])
def test_what_is_no_size_is_refused_with_the_form(text: str):
    with pytest.raises(InputError, match=r"is not a size. Give bytes, or a number with K, M, G or T"):
        parse_size(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (65536, "64 KiB"),
        (1 << 30, "1 GiB"),
        (5 << 40, "5 TiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_bytes_for_people(value: int, text: str):
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1 us"),
        (1_234_567, "1.23 ms"),
        (12_345_678, "12.3 ms"),
        (123_456_789, "123 ms"),
        (2_000_000_000, "2 s"),
        (-1500, "-1.5 us"),
    ],
)
def test_times_for_people(value: int, text: str):
    assert format_ns(value) == text


def test_bandwidths_and_shares_for_people():
    assert format_bandwidth(55e9) == "55 GB/s"
    assert format_share(0.425) == "42.5 %"
    assert format_share(None) == "-"
    assert format_share(-0.1) == "-10.0 %"


@given(st.integers(0, 1 << 50))
def test_a_size_survives_being_written_as_a_number(nbytes: int):
    assert parse_size(str(nbytes)) == nbytes


@given(st.integers(1, 1 << 50))
def test_a_size_for_people_is_within_half_a_percent(nbytes: int):
    """Three figures, so at most half of the last of 1.00."""
    assert parse_size(format_bytes(nbytes)) == pytest.approx(nbytes, rel=0.005)


def test_the_examples_in_the_docstrings_hold():
    failed, tried = doctest.testmod(units)
    assert tried >= 5
    assert failed == 0
