"""Where a number meets a unit: reading sizes and times, and writing them for people.

Inside conccl a time is an integer of nanoseconds and a size an integer of bytes; only this module and the
reporters turn them into text. Size suffixes are powers of 1024 and bandwidths powers of 1000, as nccl-tests
has them.
"""

from __future__ import annotations

import re

from conccl.core.errors import InputError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

US = 1_000
"""Nanoseconds in a microsecond."""
MS = 1_000_000
SECOND = 1_000_000_000

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)
_FACTORS = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": GIB * KIB}


def parse_size(text: str) -> int:
    """Bytes from ``"64"``, ``"64K"``, ``"1.5 GiB"``; suffixes are powers of 1024.

    >>> parse_size("64K")
    65536
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text!r} is not a size. Give bytes, or a number with K, M, G or T (powers of 1024)."
        )
    number, suffix = match.groups()
    return round(float(number) * _FACTORS[suffix.upper()])


def format_bytes(nbytes: float) -> str:
    """A size for people, in powers of 1024.

    >>> format_bytes(65536)
    '64 KiB'
    """
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < KIB:
            return f"{_three_figures(size)} {unit}"
        size /= KIB
    return f"{_three_figures(size)} TiB"


def format_ns(time_ns: float) -> str:
    """A duration for people, in the unit that keeps it short.

    >>> format_ns(1_234_567)
    '1.23 ms'
    """
    magnitude = abs(time_ns)
    if magnitude < US:
        return f"{time_ns:.0f} ns"
    if magnitude < MS:
        return f"{_three_figures(time_ns / US)} us"
    if magnitude < SECOND:
        return f"{_three_figures(time_ns / MS)} ms"
    return f"{_three_figures(time_ns / SECOND)} s"


def format_bandwidth(bytes_per_second: float) -> str:
    """A bandwidth for people, GB being 1e9 bytes as in nccl-tests.

    >>> format_bandwidth(55e9)
    '55 GB/s'
    """
    return f"{_three_figures(bytes_per_second / 1e9)} GB/s"


def format_share(share: float | None) -> str:
    """A share of a whole in percent; a dash where it has no meaning.

    >>> format_share(0.425)
    '42.5 %'
    """
    return "-" if share is None else f"{100 * share:.1f} %"


def _three_figures(number: float) -> str:
    magnitude = abs(number)
    if magnitude >= 100:
        return f"{number:.0f}"
    digits = 1 if magnitude >= 10 else 2
    return f"{number:.{digits}f}".rstrip("0").rstrip(".")
