"""Which algorithm carries out a call on the host, and where its bytes are read: one rule that says why.

The thresholds on reading peers' memory were measured (benchmarks/2026-12-01-host-transport.md); those of
kinds that were not measured follow the measured kind that reads alike. The others are guesses.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from conccl.collectives.catalogue import algorithm as named_algorithm
from conccl.collectives.transfer import Reach
from conccl.core.errors import InputError
from conccl.core.ops import CollectiveKind
from conccl.core.units import KIB, MIB
from conccl.transports.calls import Call

ONE_SHOT_NBYTES = 64 * KIB
"""Up to here everyone reduces everything: one round of words instead of two."""
READ_ONCE_NBYTES = 512 * KIB
"""From here on a block that one rank reads is read in its rank's memory: one copy instead of two."""
REDUCED_NBYTES = 1 * MIB
"""The same of blocks that are reduced, among more than two ranks; staging keeps those of two in the cache."""
WHOLE_NBYTES = 4 * MIB
"""The same of a message that is reduced as a whole and handed out again."""
PAIR_NBYTES = 8 * MIB
"""The same of a block that all others read, where that is one; several read it faster out of the cache."""
DISSEMINATION_RANKS = 9
"""From here a barrier goes round in doubled distances: fewer words to look at."""


class Reads(enum.StrEnum):
    """Where ranks read what others have."""

    STAGING = "staging"
    """In shared memory, where its rank has copied it."""
    PEERS = "peers"
    """In its rank's own memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An algorithm and why it was taken."""

    algorithm: str
    reason: str
    reads: Reads = Reads.STAGING


def choose(call: Call, /, *, count: int, reads_peers: bool = False) -> Choice:
    """The algorithm that carries out a call among so many ranks, which may be able to read peers' memory."""
    if call.algorithm is not None:
        return _asked(call, reads_peers=reads_peers)
    nbytes = sum(call.sizes)
    if reads_peers and (least := _peers_from(call.kind, count)) and call.message(count).longest >= least:
        return Choice(
            algorithm="direct",
            reason="large: bytes are copied once, out of their rank's own memory",
            reads=Reads.PEERS,
        )
    match call.kind:
        case CollectiveKind.ALL_REDUCE if nbytes <= ONE_SHOT_NBYTES:
            return Choice(algorithm="staged_one_shot", reason="small: one round instead of two")
        case CollectiveKind.BARRIER if count >= DISSEMINATION_RANKS:
            return Choice(algorithm="dissemination", reason="many ranks: few words to look at")
        case CollectiveKind.BARRIER:
            return Choice(algorithm="direct", reason="few ranks: each looks at all others")
        case _:
            return Choice(algorithm="staged", reason="each byte is copied out once and read where it lies")


def _peers_from(kind: CollectiveKind, count: int) -> int | None:
    """The longest block from which on peers' memory is read; None: never."""
    match kind:
        case CollectiveKind.ALL_TO_ALL | CollectiveKind.GATHER | CollectiveKind.SCATTER:
            return READ_ONCE_NBYTES
        case CollectiveKind.REDUCE_SCATTER | CollectiveKind.REDUCE if count > 2:
            return REDUCED_NBYTES
        case CollectiveKind.ALL_REDUCE:
            return WHOLE_NBYTES // count
        case CollectiveKind.ALL_GATHER | CollectiveKind.BROADCAST if count == 2:
            return PAIR_NBYTES
        case _:
            return None


def _asked(call: Call, *, reads_peers: bool) -> Choice:
    found = named_algorithm(call.kind, call.algorithm or "")
    if found.command is not None:
        raise InputError(
            f"{call.kind} by {found.name!r} needs engines that {found.command}; processors only copy."
            " Use 'staged'."
        )
    if call.place not in found.places:
        raise InputError(f"{call.kind} by {found.name!r} does not run {call.place}. Use another algorithm.")
    peers = reads_peers and found.reach is Reach.PEERS and call.kind is not CollectiveKind.BARRIER
    return Choice(
        algorithm=found.name, reason="asked for by name", reads=Reads.PEERS if peers else Reads.STAGING
    )
