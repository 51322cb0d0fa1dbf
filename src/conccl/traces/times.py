"""Microseconds as decimal text to integer nanoseconds, exactly.

Unix time in microseconds with three decimals needs 61 bits; a double has 53, so going through one loses up to
a quarter of a microsecond. Whole columns are converted at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Mask, Times

CENTURY_NS = 100 * 365 * 86_400 * 1_000_000_000
"""Times beyond this are no times (Unix time today is 56 years)."""

_PLAIN = b".0123456789\n"
_MAX_DIGITS = 18  # of an int64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EventTimes:
    """Starts and durations of events, one entry an event."""

    start_ns: Times
    duration_ns: Times
    good: Mask
    """Both are finite numbers within a century."""
    nanoseconds: Mask
    """The file gives these in nanoseconds, not microseconds."""


def event_times(starts: Sequence[bytes], durations: Sequence[bytes] | None, /) -> EventTimes:
    """The times of events from the text of their ``ts`` and ``dur``; None: of moments, which last 0.

    A start that is beyond a century in microseconds but not in nanoseconds is in nanoseconds, and so is its
    duration: Unix time, or a clock that has run for 37 days.
    """
    count = len(starts)
    if durations is None:
        start_ns, good = to_ns(starts)
        if good.all():
            return EventTimes(
                start_ns=start_ns, duration_ns=np.zeros_like(start_ns), good=good, nanoseconds=~good
            )
        durations = [b"0"] * count
    both, good = to_ns([*starts, *durations])
    start_ns, duration_ns, good_starts, good_durations = (
        both[:count],
        both[count:],
        good[:count],
        good[count:],
    )
    nanoseconds = np.zeros(count, dtype=np.bool_)
    for row in np.flatnonzero(~good_starts).tolist():
        value = _decimal(bytes(starts[row]))
        if value is not None and 0 < value <= CENTURY_NS:
            duration = _decimal(bytes(durations[row]))
            start_ns[row], good_starts[row], nanoseconds[row] = int(value), True, True
            good_durations[row] = duration is not None and duration.copy_abs() <= CENTURY_NS
            duration_ns[row] = int(duration) if duration is not None and good_durations[row] else 0
    return EventTimes(
        start_ns=start_ns, duration_ns=duration_ns, good=good_starts & good_durations, nanoseconds=nanoseconds
    )


def to_ns(texts: Sequence[bytes], /) -> tuple[Times, Mask]:
    """Nanoseconds of each text of microseconds, and which texts are finite numbers within a century.

    >>> to_ns([b"1682725898236567.123", b"2", b"NaN"])[0].tolist()
    [1682725898236567123, 2000, 0]
    """
    joined = b"\n".join(texts)
    if texts and not joined.translate(None, delete=_PLAIN):
        fast = _plain_to_ns(joined, len(texts))
        if fast is not None:
            return fast
    values = np.zeros(len(texts), dtype=np.int64)
    good = np.zeros(len(texts), dtype=np.bool_)
    for row, text in enumerate(texts):
        value = _one_to_ns(bytes(text))
        if value is not None:
            values[row], good[row] = value, True
    return values, good


def _plain_to_ns(joined: bytes, count: int) -> tuple[Times, Mask] | None:
    """The conversion where every text is digits with at most one point, and short enough for an int64."""
    if b"." not in joined:
        return _whole_to_ns(joined, count)
    text = np.frombuffer(joined, dtype=np.uint8)
    ends = np.append(np.flatnonzero(text == ord("\n")), len(text))
    starts = np.append(0, ends[:-1] + 1)
    points = np.flatnonzero(text == ord("."))
    decimals = np.zeros(count, dtype=np.int64)
    rows = np.searchsorted(ends, points)
    decimals[rows] = ends[rows] - points - 1
    if np.any(ends - starts > _MAX_DIGITS) or np.any(ends == starts) or len(np.unique(rows)) != len(rows):
        return None
    digits = _integers(joined.replace(b".", b""), count)
    if digits is None:
        return None
    return _scaled(digits, decimals)


def _whole_to_ns(joined: bytes, count: int) -> tuple[Times, Mask] | None:
    digits = _integers(joined, count)
    if digits is None or b"\n\n" in joined or joined[:1] == b"\n" or joined[-1:] == b"\n":
        return None
    good = digits <= CENTURY_NS // 1000
    return np.where(good, digits, 0) * 1000, good


def _integers(text: bytes, count: int) -> Times | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            numbers: npt.NDArray[np.int64] = np.fromstring(text, dtype=np.int64, sep="\n")
        except (DeprecationWarning, ValueError):
            return None
    return numbers if len(numbers) == count else None


def _scaled(digits: Times, decimals: npt.NDArray[np.int64]) -> tuple[Times, Mask]:
    """The digits x 10^(3 - decimals); from the fourth decimal on rounded, halves up."""
    up = 10 ** np.clip(3 - decimals, 0, 3)
    down = 10 ** np.clip(decimals - 3, 0, _MAX_DIGITS)
    good = digits <= CENTURY_NS // up
    scaled = np.where(good, digits, 0) * up
    return (scaled + down // 2) // down, good


def _one_to_ns(text: bytes) -> int | None:
    value = _decimal(text)
    if value is None or value.copy_abs() > CENTURY_NS:
        return None
    time_ns = int((value * 1000).to_integral_value(rounding="ROUND_HALF_UP"))
    return time_ns if abs(time_ns) <= CENTURY_NS else None


def _decimal(text: bytes) -> Decimal | None:
    """The finite number that the text is, also where it stands in quotation marks."""
    try:
        value = Decimal(text.decode("ascii").strip('" '))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    return value if value.is_finite() else None
