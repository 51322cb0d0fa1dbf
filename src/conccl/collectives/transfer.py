"""How a collective's bytes are moved, and where its tasks stand in a plan."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from conccl.collectives.layout import Windows
from conccl.core.errors import InputError
from conccl.core.ops import Region
from conccl.core.plan import Dependency, Engine, Launch

SMS = 16
"""Most SMs of a rank that a collective occupies unless told otherwise: half of the 32 CTAs that NCCL uses at
most, and of the 32 CUs from which on an all-gather gains nothing on MI300X (ConCCL, arXiv:2412.14335)."""


class Direction(enum.StrEnum):
    """Who carries a move out."""

    PUSH = "push"
    """The rank that has the bytes writes them into the other's memory."""
    PULL = "pull"
    """The rank that wants them reads them."""


class Reach(enum.StrEnum):
    """How ranks get at each other's bytes."""

    PEERS = "peers"
    """In each other's memory (NVLink, xGMI, PCIe peers, rails)."""
    HOST = "host"
    """Only in host memory that all of them map."""


class Command(enum.StrEnum):
    """What some engines can do with one command beside a copy (AMD's SDMA engines both)."""

    MULTICAST = "multicast"
    SWAP = "swap"


class Flags(enum.StrEnum):
    """What tells other ranks that bytes have arrived."""

    PER_MOVE = "per_move"
    """A flag for each move (each part of it): receivers go on as early as they can."""
    PER_LANE = "per_lane"
    """One flag behind the last of a batch of moves on a lane: fewer flags, and nobody goes on before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """How bytes are moved."""

    engine: Engine = Engine.COPY_ENGINE
    """What moves bytes between ranks. Reductions and copies inside a rank are always made by SMs: engines
    cannot add, and copies inside one GPU's memory run on SMs whatever is asked for (measured on an H200)."""
    direction: Direction = Direction.PUSH
    reach: Reach = Reach.PEERS
    commands: frozenset[Command] = frozenset()
    """What the engines can do beside copies; an algorithm that needs it is chosen only where it is there."""
    engines: int | None = None
    """Most engines (lanes) of a rank that move at once; None: one for each peer, in rings one."""
    chunks: int = 1
    """Parts that every move and reduction is cut into; each goes on as soon as it is there."""
    sms: int = SMS
    """Most SMs of a rank that all its tasks together occupy."""
    flags: Flags = Flags.PER_MOVE
    launch: Launch = Launch.HOST
    priority: int = 0
    gpus_per_node: int | None = None
    """Ranks of one node stand together in the group, this many of them; None: all ranks are one node."""
    host_staging_nbytes: int | None = None
    """Most host memory of a rank that staged algorithms use; more passes in turns. None: as needed."""

    def __post_init__(self) -> None:
        for name in ("engines", "chunks", "sms", "gpus_per_node", "host_staging_nbytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"Transfer.{name} is {value}; it must be 1 or more.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """Where a fragment stands in the plan that it becomes part of."""

    name: str = ""
    """What its task ids begin with; empty: the collective's kind. Two fragments of a plan need two names."""
    windows: Windows = field(default_factory=Windows)
    """The buffers of every rank that hold its bytes."""
    lane: str = "communication"
    """Collectives that share it follow each other, as on one stream; engines' lanes are named after it."""
    partition: str | None = None
    """The SMs that its reductions and SM moves run on, by name; None: all."""
    partition_sms: int = 0
    """How many SMs that partition holds."""
    after: Mapping[int, tuple[Dependency, ...]] = field(default_factory=dict)
    """What a rank waits for before it enters the collective."""
    ready: Callable[[Region], tuple[Dependency, ...]] | None = None
    """What must be complete before these bytes of an input are read: how a producer's parts feed a collective
    that has begun. None: inputs are complete when their rank enters."""
