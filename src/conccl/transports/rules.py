"""Which algorithm carries out a call on the host: one rule that says why.

Its thresholds are guesses: no measurement has compared the algorithms on either side of them yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from conccl.collectives.catalogue import algorithm as named_algorithm
from conccl.core.errors import InputError
from conccl.core.ops import CollectiveKind
from conccl.core.units import KIB
from conccl.transports.calls import Call

ONE_SHOT_NBYTES = 64 * KIB
"""Up to here everyone reduces everything: one round of words instead of two."""
DISSEMINATION_RANKS = 9
"""From here a barrier goes round in doubled distances: fewer words to look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An algorithm and why it was taken."""

    algorithm: str
    reason: str


def choose(call: Call, /, *, count: int) -> Choice:
    """The algorithm that carries out a call among so many ranks."""
    if call.algorithm is not None:
        return _asked(call)
    nbytes = sum(call.sizes)
    match call.kind:
        case CollectiveKind.ALL_REDUCE if nbytes <= ONE_SHOT_NBYTES:
            return Choice(algorithm="staged_one_shot", reason="small: one round instead of two")
        case CollectiveKind.BARRIER if count >= DISSEMINATION_RANKS:
            return Choice(algorithm="dissemination", reason="many ranks: few words to look at")
        case CollectiveKind.BARRIER:
            return Choice(algorithm="direct", reason="few ranks: each looks at all others")
        case _:
            return Choice(algorithm="staged", reason="each byte is copied out once and read where it lies")


def _asked(call: Call) -> Choice:
    found = named_algorithm(call.kind, call.algorithm or "")
    if found.command is not None:
        raise InputError(
            f"{call.kind} by {found.name!r} needs engines that {found.command}; processors only copy."
            " Use 'staged'."
        )
    if call.place not in found.places:
        raise InputError(f"{call.kind} by {found.name!r} does not run {call.place}. Use another algorithm.")
    return Choice(algorithm=found.name, reason="asked for by name")
