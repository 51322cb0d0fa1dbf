"""Microseconds as text become integer nanoseconds exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.traces.times import CENTURY_NS, event_times, to_ns

nanoseconds = st.integers(-CENTURY_NS, CENTURY_NS)


def _as_us(time_ns: int) -> bytes:
    sign = "-" if time_ns < 0 else ""
    return f"{sign}{abs(time_ns) // 1000}.{abs(time_ns) % 1000:03d}".encode()


@given(st.lists(nanoseconds, min_size=1, max_size=20))
def test_three_decimals_are_exact(times: list[int]) -> None:
    values, good = to_ns([_as_us(time_ns) for time_ns in times])
    assert values.tolist() == times
    assert good.all()


@given(st.lists(st.integers(-CENTURY_NS // 1000, CENTURY_NS // 1000), min_size=1, max_size=20))
def test_whole_microseconds_are_exact(times: list[int]) -> None:
    values, good = to_ns([str(time).encode() for time in times])
    assert values.tolist() == [time * 1000 for time in times]
    assert good.all()


@given(st.lists(nanoseconds, min_size=1, max_size=8), st.sampled_from([b"NaN", b"1e3", b'"7"', b"", b"x"]))
def test_an_odd_text_does_not_change_its_neighbours(times: list[int], odd: bytes) -> None:
    values, good = to_ns([*(_as_us(time_ns) for time_ns in times), odd])
    assert values[:-1].tolist() == times
    assert good[:-1].all()


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        (b"1682725898236567.123", 1_682_725_898_236_567_123),  # a double is off by 123 ns here
        (b"0.0004", 0),
        (b"0.0005", 1),
        (b"-0.0005", -1),
        (b"1234567.891", 1_234_567_891),
        (b"68.0", 68_000),
        (b"7.5", 7_500),
        (b"1e3", 1_000_000),
        (b"2.5E-3", 3),
        (b'"12.5"', 12_500),
        (b"0", 0),
    ],
)
def test_single_texts(text: bytes, time_ns: int) -> None:
    values, good = to_ns([text])
    assert (values.tolist(), good.tolist()) == ([time_ns], [True])
    together, _ = to_ns([text, b"1.5"])
    assert together.tolist() == [time_ns, 1_500]


@pytest.mark.parametrize(
    "text",
    [
        b"NaN",
        b'"NaN"',
        b"Infinity",
        b"-Infinity",
        b"null",
        b"[1]",
        b"{}",
        b"",
        b"true",
        b'"soon"',
        b"1e99",
        b"9" * 25,
        b"1e999999999",
        b"-",
        b"1.2.3",
        b"--5",
        b"1-2",
        b"\xff",
    ],
)
def test_no_time(text: bytes) -> None:
    for texts in ([text], [text, b"1"], [b"1.25", text]):
        values, good = to_ns(texts)
        assert good.tolist() == [each != text for each in texts]
        assert values[texts.index(text)] == 0


def test_nothing() -> None:
    values, good = to_ns([])
    assert (len(values), len(good)) == (0, 0)


def test_unix_time_in_nanoseconds_is_told_from_microseconds() -> None:
    times = event_times([b"1682725898236567123", b"1682725898236567.123"], [b"1500", b"1.5"])
    assert times.start_ns.tolist() == [1_682_725_898_236_567_123] * 2
    assert times.duration_ns.tolist() == [1_500] * 2
    assert times.nanoseconds.tolist() == [True, False]
    assert times.good.all()


def test_a_duration_beyond_a_century_is_none() -> None:
    assert event_times([b"1"], [str(10**17).encode()]).good.tolist() == [False]


def test_an_event_needs_both_times() -> None:
    times = event_times([b"1", b"2", b"3"], [b"1", b"", b"null"])
    assert times.good.tolist() == [True, False, False]
    assert times.start_ns.dtype == np.int64
