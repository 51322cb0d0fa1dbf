"""The host transport: collectives of processes on one host, through shared memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conccl.collectives.catalogue import algorithm as named_algorithm
from conccl.collectives.catalogue import algorithms
from conccl.collectives.layout import REDUCING, ROOTED
from conccl.collectives.transfer import Reach, Transfer
from conccl.core.errors import InputError
from conccl.core.units import format_bytes
from conccl.transports.board import COLLECTIVES, Board
from conccl.transports.calls import Call, header_of
from conccl.transports.carrier import MOST_STEPS, MOST_TILES, Carrier, Prepared
from conccl.transports.compiling import TRANSFER, programs
from conccl.transports.geometry import Geometry
from conccl.transports.reductions import reducer
from conccl.transports.rules import Reads, choose
from conccl.transports.segment import Segment
from conccl.transports.tiles import PUBLISH, Lowered, Tiling, tiling_of
from conccl.transports.waiting import Peers, Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How a call is carried out, and why so."""

    transport: str
    algorithm: str
    reason: str
    tiles: int
    """Runs of the program, one after the other; a message that staging holds takes one."""
    unit_nbytes: int
    """Bytes of a block that a tile moves."""
    fallbacks: tuple[str, ...]
    """What is not as it is at its best, and why."""

    def __str__(self) -> str:
        pieces = f", {self.tiles} tiles of {format_bytes(self.unit_nbytes)} a block" if self.tiles > 1 else ""
        rest = f" [{'; '.join(self.fallbacks)}]" if self.fallbacks else ""
        return f"{self.transport}: {self.algorithm} ({self.reason}){pieces}{rest}"


class HostTransport:
    """One rank's part in the collectives of its group; one thread at a time runs in it."""

    def __init__(
        self,
        segment: Segment,
        geometry: Geometry,
        rank: int,
        /,
        *,
        timeout_s: float,
        name: Callable[[], str],
        fallback: str = "",
        pace: Callable[[str], None] | None = None,
        reads_peers: bool = False,
    ) -> None:
        """``name``: what errors call the group; ``pace``: is called before each instruction (for tests).

        ``reads_peers``: whether all ranks can read each other's memory (`rendezvous.Joined`).
        """
        self.rank = rank
        self.count = geometry.count
        self.geometry = geometry
        self.segment = segment
        self.name = name
        self.reads_peers = reads_peers
        self.board = Board(segment, geometry, rank)
        self.peers = Peers(self.board, segment)
        self.waiting = Waiting(self.board, self.peers, door=COLLECTIVES, timeout_s=timeout_s)
        futexes = "" if self.board.sleeps_by_bell else "waits look again and again: there are no futexes"
        self.fallbacks = tuple(one for one in (fallback, futexes) if one)
        """What could not be had in the first way, and why."""
        self._carrier = Carrier(segment, geometry, self.board, self.waiting, name=name, pace=pace)
        self._turn = threading.Lock()

    @property
    def calls(self) -> int:
        """How many calls have been issued."""
        return self._carrier.number

    def prepare(self, call: Call, /) -> Prepared:
        """Choose how a call is carried out, and compile it. The same call may be issued many times."""
        choice = choose(call, count=self.count, reads_peers=self.reads_peers)
        made = programs(
            kind=call.kind,
            algorithm=choice.algorithm,
            count=self.count,
            root=call.root if call.kind in ROOTED else 0,
            place=call.place,
            average=call.reduction == "avg",
            transfer=transfer_for(named_algorithm(call.kind, choice.algorithm).reach),
            reads_peers=choice.reads is Reads.PEERS,
        )
        lowered = Lowered(made, self.rank)
        tiling = tiling_of(
            call.message(self.count),
            staging_units=made.staging_units,
            slot_nbytes=self.geometry.slot_nbytes,
        )
        _check_fits(call, tiling, lowered)
        return Prepared(
            call=call,
            choice=choice,
            lowered=lowered,
            tiling=tiling,
            header=header_of(call, choice.algorithm, reads_peers=choice.reads is Reads.PEERS),
            reduce=reducer(call.dtype, call.reduction) if call.kind in REDUCING else None,
            scratch_nbytes=lowered.program.scratch_units * tiling.unit_nbytes,
        )

    def explain(self, prepared: Prepared, /) -> Explanation:
        """How a call is carried out."""
        return Explanation(
            transport="host",
            algorithm=prepared.choice.algorithm,
            reason=prepared.choice.reason,
            tiles=prepared.tiling.tiles,
            unit_nbytes=prepared.tiling.unit_nbytes,
            fallbacks=self.fallbacks,
        )

    def run(self, prepared: Prepared, /, *, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Carry out a call; addresses are of the caller's blocks, of a whole message of its one.

        In place, a block that is both is in both. Bytes are in their places when this returns; peers may
        still read what this rank has staged. Raises what ends the group, on every rank.
        """
        with self._turn:
            try:
                self._carrier.run(prepared, inputs=inputs, outputs=outputs)
            except (KeyboardInterrupt, SystemExit):
                self.board.abort(f"ended:{self._carrier.doing()} was interrupted on rank {self.rank}")
                raise

    def disagree(self, text: str, /) -> None:
        """End the group because ranks want different things, and raise."""
        self.waiting.end("disagree", f"group {self.name()!r} call {self.calls}: {text}")

    def end(self, reason: str, /) -> None:
        """End the group: every wait of every rank ends with an error, and no call is accepted any more."""
        self.board.abort(f"ended:group {self.name()!r} was ended by rank {self.rank}: {reason}")

    def close(self) -> None:
        """Leave the group. Peers may go on reading what this rank has staged."""
        self.board.leave()
        self.board.close()
        self.segment.close()


def transfer_for(reach: Reach, /) -> Transfer:
    """The choices with which fragments are built for processors and shared memory.

    By way of host memory there is a lane to copy out and one to copy in, as fragments have it; otherwise one,
    so that no algorithm cuts blocks among engines.
    """
    if reach is Reach.HOST:
        return TRANSFER
    return Transfer(engine=TRANSFER.engine, direction=TRANSFER.direction, reach=reach, engines=1)


def algorithm_names(call: Call, /) -> tuple[str, ...]:
    """The algorithms by which a call can be carried out here."""
    return tuple(
        one.name
        for one in algorithms(call.kind).values()
        if one.command is None and not one.by_node and call.place in one.places
    )


def _check_fits(call: Call, tiling: Tiling, lowered: Lowered) -> None:
    most = max((code[1] for code in lowered.code if code[0] == PUBLISH), default=0)
    if most > MOST_STEPS:
        raise InputError(
            f"{call.kind} by {call.algorithm!r} takes {most} steps a rank; {MOST_STEPS} are the most."
            " Use another algorithm."
        )
    if tiling.tiles > MOST_TILES:
        raise InputError(
            f"{call.kind} of {tiling.message.nbytes} bytes passes in {tiling.tiles} tiles of"
            f" {tiling.unit_nbytes} bytes; {MOST_TILES} are the most. Give more shared memory."
        )
