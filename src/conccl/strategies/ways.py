"""Ways to run a GEMM and the transfer that it feeds or is fed by, as values and as the words users type.

>>> way("chunked:8:shrinking")
Chunked(chunks=8, sizes=<Sizes.SHRINKING: 'shrinking'>, order=<Order.TOGETHER: 'together'>)
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from conccl.core.errors import InputError, UnknownNameError
from conccl.strategies.cutting import Sizes


class Order(enum.StrEnum):
    """Whose rows a chunk holds, where several ranks take part."""

    TOGETHER = "together"
    """Some of every rank's: one collective moves them."""
    STAGGERED = "staggered"
    """One rank's: they go straight to it, and each rank begins with another one and ends with its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serial:
    """The GEMM as one call of the vendor's library, and the transfer before or after it."""

    def __str__(self) -> str:
        return "serial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunked:
    """Row chunks, each a call of the vendor's library, whose transfers go on beside the next ones."""

    chunks: int
    """Staggered: of each rank's block; together: in all."""
    sizes: Sizes = Sizes.EQUAL
    order: Order = Order.TOGETHER

    def __post_init__(self) -> None:
        least = 1 if self.order is Order.STAGGERED else 2
        if self.chunks < least:
            raise InputError(f"{self.chunks} chunks: give {least} or more, or use serial.")

    def __str__(self) -> str:
        words = ["chunked", str(self.chunks)]
        if self.sizes is not Sizes.EQUAL:
            words.append(self.sizes.value)
        if self.order is not Order.TOGETHER:
            words.append(self.order.value)
        return ":".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """One persistent kernel that counts finished tiles; full counters trigger transfers (T3)."""

    chunks: int

    def __post_init__(self) -> None:
        if self.chunks < 1:
            raise InputError(f"{self.chunks} chunks: give 1 or more.")

    def __str__(self) -> str:
        return f"tracked:{self.chunks}"


Way = Serial | Chunked | Tracked

AUTO = "auto"
"""Not a way but the choice of one, by `conccl.strategies.fused_choice`."""

NAMES = (AUTO, "serial", "chunked", "tracked")
"""The words that a way begins with."""

CHUNKS = 8
"""Where a word gives no number."""


def way(text: str, /) -> Way:
    """The way that a text says: ``serial``, ``chunked:4:shrinking:staggered``, ``tracked:16``."""
    name, *rest = text.strip().lower().split(":")
    if name not in NAMES or name == AUTO:
        raise UnknownNameError(kind="way", name=text, known=NAMES)
    if name == "serial":
        _require_no(rest, text)
        return Serial()
    chunks = CHUNKS
    if rest and rest[0].isdecimal():
        chunks = int(rest.pop(0))
    if name == "tracked":
        _require_no(rest, text)
        return Tracked(chunks=chunks)
    sizes, order = Sizes.EQUAL, Order.TOGETHER
    for word in rest:
        if word in list(Sizes):
            sizes = Sizes(word)
        elif word in list(Order):
            order = Order(word)
        else:
            _require_no([word], text)
    return Chunked(chunks=chunks, sizes=sizes, order=order)


def _require_no(words: Iterable[str], text: str) -> None:
    for word in words:
        allowed = ", ".join(("a number of chunks", *Sizes, *Order))
        raise InputError(f"way {text!r}: {word!r} is none of {allowed}, or not of this way.")
