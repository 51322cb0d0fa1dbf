"""Runs the programs of all ranks in one thread, in random interleavings, on real bytes, looking for races.

What a transport does between processes, without them: words of progress, staging slots in turn, tiles,
several calls in a row. Clocks tell which accesses are ordered; two on the same bytes of staging, one of
them writing, and are not ordered are a race, whether or not this interleaving shows it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conccl.collectives.catalogue import algorithms
from conccl.collectives.elements import combine
from conccl.collectives.layout import Layout
from conccl.collectives.transfer import Direction, Reach, Transfer
from conccl.core.ops import CollectiveKind, ReduceOp
from conccl.core.plan import Engine
from conccl.transports.compiling import programs
from conccl.transports.program import Await, Block, Combine, Copy, Space
from conccl.transports.tiles import Lowered, Message, tiling_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    layout: Layout
    algorithm: str
    inputs: Sequence[np.ndarray]


GRAIN = 2
"""Bytes of private memory that are looked after together: the elements of tests are whole numbers of them."""


class RaceError(AssertionError):
    pass


class World:
    """The memory and the words of all ranks."""

    def __init__(
        self, count: int, *, slots: int, slot_nbytes: int, seed: int, reads_peers: bool = False
    ) -> None:
        self.reads_peers = reads_peers
        """Whether algorithms that reach peers read their memory; it is then looked after as staging is."""
        self.private: list[dict] = [{} for _ in range(count)]
        """[rank][call] -> its memory and scratch; all of it lives on, so that no address has two meanings."""
        self.count, self.slots, self.slot_nbytes = count, slots, slot_nbytes
        self.random = random.Random(seed)
        self.staging = np.full((count, slots * slot_nbytes), 0xEE, np.uint8)
        self.word = [(-1, 0, 0)] * count
        self.clock = [[0] * count for _ in range(count)]
        self.told: list[list[tuple[tuple[int, int, int], list[int]]]] = [[] for _ in range(count)]
        self.last_write: dict[tuple[int, int], tuple[int, int]] = {}
        self.reads: dict[tuple[int, int], dict[int, int]] = {}
        self.waits = 0

    def run(self, calls: Sequence[Call]) -> list[list[np.ndarray]]:
        """[call][rank] -> output bytes."""
        outputs: list[list[np.ndarray]] = [[None] * self.count for _ in calls]
        runs = {rank: self._rank(rank, calls, outputs) for rank in range(self.count)}
        stuck = 0
        while runs:
            rank = self.random.choice(list(runs))
            try:
                stuck = stuck + 1 if next(runs[rank]) == "waits" else 0
            except StopIteration:
                del runs[rank]
                stuck = 0
            assert stuck < 10_000, "the programs hang"
        return outputs

    def _rank(self, rank, calls, outputs):  # noqa: C901 (what carriers do, in one place)
        sequence, busy = 0, [[] for _ in range(self.slots)]
        for number, call in enumerate(calls):
            layout = call.layout
            peers = self.reads_peers and algorithms(layout.kind)[call.algorithm].reach is Reach.PEERS
            lowered = _lowered(layout, call.algorithm, rank, peers)
            tiling = tiling_of(
                message_of(layout), staging_units=lowered.staging_units, slot_nbytes=self.slot_nbytes
            )
            memory = _own_memory(layout, rank, call.inputs[rank])
            scratch = np.full(max(lowered.program.scratch_units, 1) * tiling.unit_nbytes, 0xDD, np.uint8)
            self.private[rank][number] = memory, scratch
            assert tiling.tiles == 1 or not peers
            for tile in range(tiling.tiles):
                slot = sequence % self.slots
                sequence += 1
                for peer, value in busy[slot]:
                    while self.word[peer] < value:
                        yield "waits"
                    self._join(rank, peer, value)
                busy[slot] = [(peer, (number, tile, steps)) for peer, steps in lowered.release]
                self._tell(rank, (number, tile, 0))
                lengths = dict(zip(lowered.contents, tiling.lengths(lowered.contents, tile), strict=True))
                for one in lowered.program.instructions:
                    if isinstance(one, Await):
                        value = (number, tile, one.steps)
                        while self.word[one.rank] < value:
                            self.waits += 1
                            yield "waits"
                        self._join(rank, one.rank, value)
                    elif isinstance(one, (Copy, Combine)):
                        nbytes = lengths[one.content]
                        where = (rank, tile, tiling, slot, number, peers)
                        read = [
                            self._bytes(source, nbytes, False, *where).copy()
                            for source in (one.sources if isinstance(one, Combine) else (one.source,))
                        ]
                        yield "reads"
                        result = read[0]
                        if isinstance(one, Combine):
                            result = _combined(read, layout, one.divisor)
                        self._bytes(one.destination, nbytes, True, *where)[:] = result
                    else:
                        self._tell(rank, (number, tile, one.steps))
                    yield "goes"
            outputs[number][rank] = memory.output()
            if peers:  # the caller does what it likes with its buffers
                for one in (*memory.inputs, *memory.outputs, scratch):
                    self._touch_memory(rank, one, True)
                    one[:] = 0xAB

    def _tell(self, rank, value):
        assert value >= self.word[rank], "progress goes back"
        self.word[rank] = value
        self.clock[rank][rank] += 1
        self.told[rank].append((value, list(self.clock[rank])))

    def _join(self, rank, peer, value):
        clock = next(clock for told, clock in self.told[peer] if told >= value)
        self.clock[rank] = [max(pair) for pair in zip(self.clock[rank], clock, strict=True)]

    def _bytes(self, block: Block, nbytes, writes, rank, tile, tiling, slot, number, peers):
        unit = tiling.unit_nbytes
        if block.space is Space.STAGING:
            start = slot * self.slot_nbytes + block.unit * unit
            assert block.unit * unit + nbytes <= self.slot_nbytes
            if nbytes:
                for number in range(start // 64, -(-(start + nbytes) // 64)):
                    self._touch(rank, (block.rank, number), writes)
            return self.staging[block.rank, start : start + nbytes]
        assert block.rank < 0 or (peers and not writes)
        memory, scratch = self.private[rank if block.rank < 0 else block.rank][number]
        if block.space is Space.SCRATCH:
            found = scratch[block.unit * unit : block.unit * unit + nbytes]
        else:
            blocks = memory.inputs if block.space is Space.INPUT else memory.outputs
            offset = tiling.offset(tile)
            if tiling.message.is_whole:
                found = blocks[0][offset + block.unit * unit :][:nbytes]
            else:
                found = blocks[block.unit][offset:][:nbytes]
        assert found.size == nbytes
        if peers:
            self._touch_memory(rank, found, writes)
        return found

    def _touch_memory(self, rank, array, writes):
        first = array.__array_interface__["data"][0]
        for grain in range(first // GRAIN, -(-(first + array.size) // GRAIN)):
            self._touch(rank, ("memory", grain), writes)

    def _touch(self, rank, line, writes):
        """A line is 64 bytes; own clock counts from the last word told, which is when others may know."""
        now = self.clock[rank][rank] + 1

        def ordered(who, when):
            return who == rank or self.clock[rank][who] >= when

        if line in self.last_write and not ordered(*self.last_write[line]):
            raise RaceError(f"rank {rank} touches {line}, which rank {self.last_write[line][0]} wrote")
        if writes:
            for reader, when in self.reads.pop(line, {}).items():
                if not ordered(reader, when):
                    raise RaceError(f"rank {rank} writes {line}, which rank {reader} reads")
            self.last_write[line] = (rank, now)
        else:
            self.reads.setdefault(line, {})[rank] = now


def _combined(read, layout, divisor):
    op = layout.collective.reduce_op
    if op is ReduceOp.AVG and divisor is None:
        op = ReduceOp.SUM
    return combine(read, dtype=layout.collective.dtype, reduce_op=op, divisor=divisor or 1)


@dataclass
class _Own:
    """A rank's input and output blocks as views, one buffer where in place."""

    whole: np.ndarray
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]

    def output(self) -> np.ndarray:
        return self.whole.copy()


def message_of(layout: Layout) -> Message:
    if layout.kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST, CollectiveKind.REDUCE):
        sizes = (layout.collective.nbytes,)
    elif layout.kind is CollectiveKind.ALL_TO_ALL:
        sizes = tuple(size for row in layout.sizes for size in row)
    else:
        sizes = layout.sizes[0]
    return Message(kind=layout.kind, count=layout.count, sizes=sizes)


def transfer_of(kind: CollectiveKind, algorithm: str, count: int) -> Transfer:
    """The choices with which the host transport builds this algorithm."""
    reach = algorithms(kind)[algorithm].reach
    return Transfer(
        engine=Engine.SM,
        direction=Direction.PULL,
        reach=reach,
        engines=None if reach is Reach.HOST else 1,
        gpus_per_node=2 if count % 2 == 0 else 1,
    )


def _lowered(layout: Layout, algorithm: str, rank: int, reads_peers: bool) -> Lowered:
    made = programs(
        kind=layout.kind,
        algorithm=algorithm,
        count=layout.count,
        root=layout.root,
        place=layout.place,
        average=layout.collective.reduce_op == "avg",
        transfer=transfer_of(layout.kind, algorithm, layout.count),
        reads_peers=reads_peers,
    )
    return Lowered(made, rank)


def _own_memory(layout: Layout, rank: int, given: np.ndarray) -> _Own:
    """Buffers as the caller would have them, cut into the blocks of the layout."""
    sizes: dict[str, int] = {}
    for region in (layout.whole_input(rank), layout.whole_output(rank)):
        sizes[region.buffer] = max(sizes.get(region.buffer, 0), region.end)
    buffers = {name: np.full(nbytes, 0xCC, np.uint8) for name, nbytes in sizes.items()}

    def view(region):
        return buffers[region.buffer][region.offset : region.end]

    view(layout.whole_input(rank))[:] = given
    inputs, outputs = _blocks_of(layout, rank, view)
    return _Own(whole=view(layout.whole_output(rank)), inputs=inputs, outputs=outputs)


def _blocks_of(layout: Layout, rank: int, view):
    """The blocks that units of Space.INPUT and Space.OUTPUT stand for."""
    if layout.kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST, CollectiveKind.REDUCE):
        given, got = layout.whole_input(rank), layout.whole_output(rank)
        return [view(given)], [view(got)]
    kind, n = layout.kind, layout.count
    gathers = kind in (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER)
    scatters = kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER)
    inputs: list = []
    outputs: list = []
    if rank == layout.root or kind is not CollectiveKind.SCATTER:
        inputs = [view(layout.given(rank, one)) for one in ([rank] if gathers else range(n))]
    if rank == layout.root or kind is not CollectiveKind.GATHER:
        outputs = [view(layout.got(rank, one)) for one in ([rank] if scatters else range(n))]
    return inputs, outputs
