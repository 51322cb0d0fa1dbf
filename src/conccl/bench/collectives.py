"""Sizes, times and bandwidths of collectives as nccl-tests counts and names them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.kinds import CollectiveKind
from conccl.core.metrics import bus_factor

MEASURED = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.BROADCAST,
    CollectiveKind.REDUCE,
    CollectiveKind.GATHER,
    CollectiveKind.SCATTER,
)
"""What can be measured."""

IN_PLACE_ONLY = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST, CollectiveKind.REDUCE})
"""torch.distributed has these in place only."""
OUT_OF_PLACE_ONLY = frozenset({CollectiveKind.ALL_TO_ALL})
"""And these out of place only; nccl-tests too has no in-place all_to_all."""

_BLOCKS = frozenset(
    {
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.GATHER,
        CollectiveKind.SCATTER,
    }
)
"""Their size is that of all ranks' blocks, their count that of one."""

_FACTORS = {
    CollectiveKind.ALL_REDUCE: "2(n-1)/n",
    **dict.fromkeys(_BLOCKS, "(n-1)/n"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One way of carrying out a collective of one size, over all iterations and ranks."""

    times_ns: tuple[int, ...]
    """Of each iteration; each is the mean over the ranks."""
    nwrong: int | None
    """Elements that differ from the reference, over all ranks; None: not checked."""

    @property
    def time_ns(self) -> float:
        """Mean over the iterations, as nccl-tests has it."""
        return statistics.fmean(self.times_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """A collective of one size."""

    kind: CollectiveKind
    ranks: int
    nbytes: int
    """As nccl-tests counts them (`metrics.bus_factor`)."""
    count: int
    """Elements, of one block where each rank has one."""
    dtype: str
    redop: str
    """Empty where nothing is reduced."""
    root: int
    """-1 where there is none."""
    out_of_place: Timing | None
    in_place: Timing | None
    how: str = ""
    """What the backend says that it did."""

    def bandwidths(self, timing: Timing, /) -> tuple[float, float]:
        """Algorithm and bus bandwidth in bytes/s."""
        algorithm = self.nbytes * 1e9 / timing.time_ns
        return algorithm, algorithm * bus_factor(kind=self.kind, ranks=self.ranks)

    @property
    def nwrong(self) -> int:
        """Wrong elements, however it was carried out."""
        return sum(one.nwrong or 0 for one in (self.out_of_place, self.in_place) if one is not None)


def average_bus_bandwidth(rows: Sequence[CollectiveRow], /) -> float | None:
    """Mean bus bandwidth in bytes/s over sizes and ways; None without any."""
    found = [
        row.bandwidths(timing)[1]
        for row in rows
        for timing in (row.out_of_place, row.in_place)
        if timing is not None
    ]
    return statistics.fmean(found) if found else None


def formula(kind: CollectiveKind, ranks: int, /) -> str:
    """How bandwidths follow from sizes and times, in words."""
    what = "all blocks of a rank together" if kind in _BLOCKS else "what a rank holds"
    factor = bus_factor(kind=kind, ranks=ranks)
    symbol = _FACTORS.get(kind, "1")
    times = f" = algbw x {factor:.4g} for n = {ranks}" if symbol != "1" else ""
    return f"algbw = size / time; busbw = algbw x {symbol}{times}; size: {what}; GB = 1e9 bytes"


def sizes(*, least: int, most: int, factor: int | None, step: int | None) -> Iterator[int]:
    """Sizes from least to most, each ``factor`` times or ``step`` bytes more than the one before."""
    if not 0 <= least <= most:
        raise InputError(f"sizes from {least} to {most} bytes: the first (-b) may not exceed the last (-e).")
    if step is None and (factor is None or factor < 2):
        raise InputError(f"sizes that grow by a factor (-f) of {factor}; it must be 2 or more.")
    if step is not None and step < 1:
        raise InputError(f"sizes that grow by (-i) {step} bytes; it must be 1 or more.")
    size = least
    while size <= most:
        yield size
        size = size + step if step is not None else max(size, 1) * (factor or 2)


def elements(kind: CollectiveKind, nbytes: int, /, *, ranks: int, element_nbytes: int) -> int:
    """Elements of a block (or of the whole message) in so many bytes, rounded down."""
    return nbytes // (element_nbytes * (ranks if kind in _BLOCKS else 1))


def size_of(kind: CollectiveKind, count: int, /, *, ranks: int, element_nbytes: int) -> int:
    """Bytes of a collective of so many elements, as nccl-tests counts them."""
    return count * element_nbytes * (ranks if kind in _BLOCKS else 1)
