"""Strategies as frozen values of orthogonal parts, and the names that they go by.

>>> strategy("partitioned:16").sharing
Partitioned(communication_sms=16)
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from dataclasses import dataclass

from conccl.core.errors import InputError, UnknownNameError
from conccl.core.plan import Engine
from conccl.strategies.cutting import Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """One side after the other: each has the GPU to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmanaged:
    """Computation is launched first, and the hardware shares as it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prioritized:
    """Communication is launched first, with high priority, one CTA an SM (schedule prioritization)."""

    communication_sms: int | None = None
    """SMs that it may take; None: as many as it needs for its full pace."""

    def __post_init__(self) -> None:
        _require_sms(self.communication_sms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioned:
    """Two disjoint groups of SMs, one for each side (resource partitioning)."""

    communication_sms: int | None = None
    """SMs of the communication's group; None: what slowdown tables say is best."""

    def __post_init__(self) -> None:
        _require_sms(self.communication_sms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrioritizedPartitioned:
    """Both: communication first and with high priority, in a group of SMs of its own."""

    communication_sms: int | None = None

    def __post_init__(self) -> None:
        _require_sms(self.communication_sms)


Sharing = Alone | Unmanaged | Prioritized | Partitioned | PrioritizedPartitioned


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Both sides as single ops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunked:
    """The producer in so many row chunks, each followed by its share of the transfer."""

    count: int = 8
    sizes: Sizes = Sizes.EQUAL

    def __post_init__(self) -> None:
        _require_several(self.count, "chunks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """One producer kernel whose finished groups of tiles trigger their transfer (T3)."""

    parts: int = 8

    def __post_init__(self) -> None:
        _require_several(self.parts, "parts")


Granularity = Whole | Chunked | Fused


class Path(enum.StrEnum):
    """Who carries a collective out."""

    PLANNED = "planned"
    """Copies that the plan lists one by one."""
    LIBRARY = "library"
    """The vendor's library, as one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How the two sides of a pair run together."""

    engine: Engine = Engine.SM
    """What moves the communication's bytes."""
    sharing: Sharing = Unmanaged()
    granularity: Granularity = Whole()
    path: Path = Path.LIBRARY
    """Of a collective; copies have only one path."""
    trimmed_sms: int = 0
    """SMs that a memory-bound compute op does without: fewer of them thrash the caches less (ConCCL)."""

    def __post_init__(self) -> None:
        if self.trimmed_sms < 0:
            raise InputError(f"a strategy that trims {self.trimmed_sms} SMs; it must be 0 or more.")
        if self.engine is Engine.COPY_ENGINE and isinstance(self.sharing, _SM_SHARING):
            raise InputError(
                f"copy engines need no SMs, so {type(self.sharing).__name__} has nothing to share out."
                " Use Unmanaged or Prioritized."
            )


_SM_SHARING = (Partitioned, PrioritizedPartitioned)

SERIAL = Strategy(sharing=Alone())

COPY_ENGINES = Strategy(engine=Engine.COPY_ENGINE, path=Path.PLANNED)

POLICY = "policy"
"""Not a strategy but the choice of one: by `choosing.choose` from costs, or by measurements."""

TRIM = 8
"""SMs that ConCCL takes from a memory-bound GEMM: one of each die of an MI300X (arXiv:2412.14335)."""

_NAMED: dict[str, Callable[[int | None], Strategy]] = {
    "serial": lambda _: SERIAL,
    "baseline": lambda _: Strategy(),
    "prioritized": lambda sms: Strategy(sharing=Prioritized(communication_sms=sms)),
    "partitioned": lambda sms: Strategy(sharing=Partitioned(communication_sms=sms)),
    "prioritized_partitioned": lambda sms: Strategy(sharing=PrioritizedPartitioned(communication_sms=sms)),
    "ce": lambda _: COPY_ENGINES,
    "ce_trimmed": lambda sms: dataclasses.replace(COPY_ENGINES, trimmed_sms=TRIM if sms is None else sms),
    "chunked": lambda count: dataclasses.replace(COPY_ENGINES, granularity=Chunked(count=count or 8)),
    "fused": lambda parts: dataclasses.replace(COPY_ENGINES, granularity=Fused(parts=parts or 8)),
    "nccl_zero": lambda _: Strategy(engine=Engine.COPY_ENGINE, path=Path.LIBRARY),
}

_TAKES_A_NUMBER = frozenset(
    {"prioritized", "partitioned", "prioritized_partitioned", "ce_trimmed", "chunked", "fused"}
)

NAMES = (*_NAMED, POLICY)
"""The names that commands take."""


def strategy(name: str, /) -> Strategy:
    """The strategy of a name; ``partitioned:16`` and the like set its number (SMs, chunks or parts)."""
    word, colon, number = name.strip().lower().partition(":")
    if word not in _NAMED:
        raise UnknownNameError(kind="strategy", name=name, known=NAMES)
    if not colon:
        return _NAMED[word](None)
    if word not in _TAKES_A_NUMBER:
        raise InputError(f"strategy {word!r} takes no number; {name!r} gives one.")
    if not number.isdecimal() or int(number) < 1:
        raise InputError(f"strategy {name!r}: after the colon comes a number of 1 or more, as in {word}:16.")
    return _NAMED[word](int(number))


def name_of(strategy: Strategy, /) -> str:
    """The name by which `strategy` gives this value, with its number where it has one.

    >>> name_of(Strategy(sharing=Partitioned(communication_sms=16)))
    'partitioned:16'
    """
    for word, make in _NAMED.items():
        if make(None) == strategy:
            return word
    words, number = _numbered(strategy)
    for word in words:
        if number and _NAMED[word](number) == strategy:
            return f"{word}:{number}"
    return repr(strategy)


def _numbered(strategy: Strategy) -> tuple[tuple[str, ...], int]:
    """The names that its number could belong to, and the number; 0: it has none."""
    match strategy.granularity:
        case Chunked() as chunked:
            return ("chunked",), chunked.count
        case Fused() as fused:
            return ("fused",), fused.parts
        case Whole():
            number = getattr(strategy.sharing, "communication_sms", None) or strategy.trimmed_sms
            return ("prioritized", "partitioned", "prioritized_partitioned", "ce_trimmed"), number


def _require_sms(sms: int | None) -> None:
    if sms is not None and sms < 1:
        raise InputError(f"communication_sms is {sms}; it must be 1 or more.")


def _require_several(count: int, what: str) -> None:
    if count < 2:
        raise InputError(f"{count} {what}: give 2 or more, or use the op whole.")
