"""Builds a fragment from moves and reductions listed in an order that would be right one at a time.

The builder finds what really has to wait (`hazards`), part by part, and leaves out what a lane's order or an
earlier wait of the same lane already guarantees. Every rank enters (a signal, after which peers may touch its
buffers) and leaves (a signal that waits for all that touches them); what follows waits for its rank's exit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from conccl.collectives.hazards import Segments
from conccl.collectives.layout import Layout, divide, part_of
from conccl.collectives.transfer import Direction, Embedding, Flags, Transfer
from conccl.collectives.waits import Waits
from conccl.core.ops import Memory, Move, Multicast, Op, Reduce, ReduceOp, Region, Signal, Swap
from conccl.core.plan import Buffer, Dependency, Engine, Part, Plan, Side, Task

_VECTOR_NBYTES = 16
"""Staging begins at multiples of this: the widest load of a thread."""


@dataclass(slots=True, kw_only=True)
class _Listed:
    """A task before it is known how many SMs it gets."""

    op: Op
    id: str
    rank: int
    lane: str
    engine: Engine
    on_sms: bool
    after: list[Dependency]
    parts: tuple[Part, ...] = ()


class Builder:
    """A fragment in the making; algorithms call `move`, `reduce` and their like, then comes `plan`."""

    def __init__(self, *, layout: Layout, transfer: Transfer, embedding: Embedding) -> None:
        self.layout = layout
        self.transfer = transfer
        self._embedding = embedding
        self._name = embedding.name or str(layout.kind)
        self._listed: list[_Listed] = []
        self._waits = Waits()
        self._segments: dict[tuple[int, str], Segments] = {}
        self._staged: dict[tuple[int, Memory], int] = {}
        self._parts: dict[tuple[int, int], tuple[Part, ...]] = {}
        self._asked: set[tuple[int, str, int | None]] = set()
        self._needs = {one.task: None for waits in embedding.after.values() for one in waits}
        self._entered = {
            rank: self.signal(position, (), name="enter", external=embedding.after.get(rank, ()))
            for position, rank in enumerate(layout.ranks)
        }

    @property
    def engines(self) -> int:
        """How many lanes of a rank move at once."""
        wanted = self.transfer.engines or max(1, self.layout.count - 1)
        return min(wanted, self.transfer.sms) if self.transfer.engine is Engine.SM else wanted

    @property
    def reads_peers(self) -> bool:
        """Whether a reduction reads its peers' bytes where they lie instead of having them moved first."""
        return self.transfer.engine is Engine.SM and self.transfer.direction is Direction.PULL

    def stage(self, position: int, nbytes: int, /, *, memory: Memory = Memory.DEVICE) -> Region:
        """New bytes in the staging buffer of this position."""
        windows = self.layout.windows
        window = windows.host_staging if memory is Memory.HOST else windows.staging
        at = self._staged.get((position, memory), 0)
        self._staged[position, memory] = at + -(-nbytes // _VECTOR_NBYTES) * _VECTOR_NBYTES
        return Region(
            rank=self.layout.ranks[position], buffer=window.buffer, offset=window.offset + at, nbytes=nbytes
        )

    def move(self, source: Region, destination: Region, /, *, engine: int = 0, by: int | None = None) -> None:
        """Copy source to destination; nothing where there is nothing to do.

        ``engine`` counts a rank's engines from 0, round robin over those it has; ``by`` is the rank that
        carries it out (None: the one that the transfer's direction says).
        """
        if source.nbytes == 0 or source == destination:
            return
        if by is None:
            by = source.rank if self.transfer.direction is Direction.PUSH else destination.rank
        host = self.layout.windows.host_staging.buffer
        local = source.rank == destination.rank and host not in (source.buffer, destination.buffer)
        self._emit(
            Move(source=source, destination=destination),
            id_=f"{self._name}.move{len(self._listed)}.r{source.rank}-r{destination.rank}",
            rank=by,
            engine=Engine.SM if local else self.transfer.engine,
            lane=self._lane_name(Engine.SM, 0) if local else self._lane_name(self.transfer.engine, engine),
            reads=(source,),
            writes=(destination,),
        )

    def multicast(self, source: Region, destinations: Sequence[Region], /, *, engine: int) -> None:
        """Copy source to all destinations by one command of the rank that has it."""
        if source.nbytes:
            self._emit(
                Multicast(source=source, destinations=tuple(destinations)),
                id_=f"{self._name}.multicast{len(self._listed)}.r{source.rank}",
                rank=source.rank,
                engine=self.transfer.engine,
                lane=self._lane_name(self.transfer.engine, engine),
                reads=(source,),
                writes=destinations,
            )

    def swap(self, first: Region, second: Region, /, *, engine: int) -> None:
        """Exchange two regions by one command of the first's rank."""
        if first.nbytes:
            self._emit(
                Swap(first=first, second=second),
                id_=f"{self._name}.swap{len(self._listed)}.r{first.rank}-r{second.rank}",
                rank=first.rank,
                engine=self.transfer.engine,
                lane=self._lane_name(self.transfer.engine, engine),
                reads=(first, second),
                writes=(first, second),
            )

    def reduce(self, sources: Sequence[Region], destination: Region, /, *, last: bool, lane: int = 0) -> None:
        """Combine sources on the destination's rank; ``last``: the result holds every rank's values.

        ``lane`` counts the rank's lanes of SM tasks; it should be one without moves where the two alternate.
        """
        parts = self._cut(destination.nbytes, self.transfer.chunks)
        if self.transfer.engine is Engine.SM or len(parts) == 1:
            self._reduce(sources, destination, last=last, lane=lane)
            return
        for part in parts:  # a kernel each: one that waited for the next chunk would hold its SMs meanwhile
            nbytes = part.stop - part.start
            pieces = [part_of(source, part.start, nbytes) for source in sources]
            self._reduce(pieces, part_of(destination, part.start, nbytes), last=last, lane=lane, chunks=1)

    def _reduce(
        self,
        sources: Sequence[Region],
        destination: Region,
        *,
        last: bool,
        lane: int,
        chunks: int | None = None,
    ) -> None:
        if destination.nbytes == 0:
            return
        collective = self.layout.collective
        reduce_op, divisor = collective.reduce_op, None
        if reduce_op is ReduceOp.AVG:
            reduce_op, divisor = (reduce_op, self.layout.count) if last else (ReduceOp.SUM, None)
        op = Reduce(
            sources=tuple(sources),
            destination=destination,
            dtype=collective.dtype,
            reduce_op=reduce_op,
            divisor=divisor,
        )
        self._emit(
            op,
            id_=f"{self._name}.reduce{len(self._listed)}.r{destination.rank}",
            rank=destination.rank,
            engine=Engine.SM,
            lane=f"{self._embedding.lane}.{Engine.SM}{lane}",
            reads=op.sources,
            writes=(destination,),
            chunks=chunks,
        )

    def entered(self, position: int, /) -> int:
        """The step by which this position has entered."""
        return self._entered[self.layout.ranks[position]]

    def signal(
        self, position: int, waits: Iterable[int], /, *, name: str, external: tuple[Dependency, ...] = ()
    ) -> int:
        """A signal on this position's own lane that waits for steps of any rank; returns its step."""
        rank = self.layout.ranks[position]
        id_ = f"{self._name}.{name}.r{rank}"
        lane = self._waits.lane(rank, self._embedding.lane)
        after = list(external)
        self._waits.resolve(waits, after, lane=lane, part=0)
        self._listed.append(
            _Listed(
                op=Signal(),
                id=id_,
                rank=rank,
                lane=self._embedding.lane,
                engine=Engine.SM,
                on_sms=False,
                after=after,
            )
        )
        return self._waits.add(id_, lane=lane, parts=1)

    def batch_done(self) -> None:
        """A batch of moves is listed: where flags are per lane, each is known by its lane's last move."""
        if self.transfer.flags is Flags.PER_LANE:
            self._waits.flag_lanes()

    def plan(self, *, algorithm: str) -> Plan:
        """The fragment, complete with exits and buffers; its label says by which algorithm."""
        for position in range(self.layout.count):
            self._exit(position)
        partition = self._embedding.partition
        sms = self._sms()
        return Plan(
            tasks=tuple(self._task(listed, sms=sms) for listed in self._listed),
            partitions={partition: self._embedding.partition_sms} if partition is not None else {},
            buffers=tuple(self._buffers()),
            needs=tuple(self._needs),
            label=f"{self._name}: {algorithm}",
        )

    def _exit(self, position: int) -> None:
        """Wait for all that touches this position's buffers, as a write to all of them would."""
        rank = self.layout.ranks[position]
        waits: list[int] = []
        for (owner, _), segments in self._segments.items():
            if owner == rank:
                segments.finish(waits)
        self.signal(position, waits, name="exit")

    def _buffers(self) -> Iterable[Buffer]:
        layout = self.layout
        sizes: dict[tuple[int, str, Memory], int] = {}
        for position, rank in enumerate(layout.ranks):
            ends = [
                layout.input(position, 0, layout.input_nbytes(position)),
                layout.output(position, 0, layout.output_nbytes(position)),
            ]
            for region in ends:
                key = (rank, region.buffer, Memory.DEVICE)
                sizes[key] = max(sizes.get(key, 0), region.end if region.nbytes else 0)
            for memory, window in (
                (Memory.DEVICE, layout.windows.staging),
                (Memory.HOST, layout.windows.host_staging),
            ):
                nbytes = self._staged.get((position, memory), 0)
                sizes[rank, window.buffer, memory] = window.offset + nbytes if nbytes else 0
        return (
            Buffer(rank=rank, name=name, nbytes=nbytes, memory=memory)
            for (rank, name, memory), nbytes in sizes.items()
            if nbytes
        )

    def _emit(
        self,
        op: Op,
        *,
        id_: str,
        rank: int,
        engine: Engine,
        lane: str,
        reads: Sequence[Region],
        writes: Sequence[Region],
        chunks: int | None = None,
    ) -> None:
        number = self._waits.lane(rank, lane)
        parts = self._cut(writes[0].nbytes, chunks or self.transfer.chunks)
        step = self._waits.add(id_, lane=number, parts=len(parts))
        reading = [(self._segments_of(region), region) for region in reads]
        writing = [(self._segments_of(region), region.offset) for region in writes]
        after: list[Dependency] = []
        for part, piece in enumerate(parts):
            awaited: list[int] = []
            for segments, region in reading:
                start, stop = region.offset + piece.start, region.offset + piece.stop
                segments.read(start, stop, access=step + part, lane=number, waits=awaited)
                if self._embedding.ready is not None:
                    self._wait_for_input(after, region, start, stop, lane=number, part=part)
            for segments, offset in writing:
                segments.write(offset + piece.start, offset + piece.stop, access=step + part, waits=awaited)
            self._waits.resolve(awaited, after, lane=number, part=part)
        self._listed.append(
            _Listed(
                op=op,
                id=id_,
                rank=rank,
                lane=lane,
                engine=engine,
                on_sms=engine is Engine.SM,
                after=after,
                parts=parts if len(parts) > 1 else (),
            )
        )

    def _task(self, listed: _Listed, *, sms: int) -> Task:
        return Task(
            id=listed.id,
            op=listed.op,
            rank=listed.rank,
            lane=listed.lane,
            side=Side.COMMUNICATION,
            engine=listed.engine,
            launch=self.transfer.launch,
            priority=self.transfer.priority,
            sms=sms if listed.on_sms else None,
            # Packed onto one SM, CTAs of a communication kernel run several times slower (H200).
            ctas_per_sm=1 if listed.on_sms else None,
            partition=self._embedding.partition if listed.on_sms else None,
            after=tuple(listed.after),
            parts=listed.parts,
        )

    def _sms(self) -> int:
        """SMs of each task: lanes of a rank may all be busy at once and share what it may occupy."""
        lanes: dict[int, set[str]] = {}
        for listed in self._listed:
            if listed.on_sms:
                lanes.setdefault(listed.rank, set()).add(listed.lane)
        return max(1, self.transfer.sms // max(map(len, lanes.values()), default=1))

    def _wait_for_input(
        self, after: list[Dependency], region: Region, start: int, stop: int, *, lane: int, part: int
    ) -> None:
        """Add what the caller says must be complete before bytes that no task of the fragment has written."""
        ready = self._embedding.ready
        if ready is None:
            return
        entered = self._entered[region.rank]
        for begin, end, writer in self._segments_of(region).pieces(start, stop):
            if writer != entered:
                continue
            bytes_ = Region(rank=region.rank, buffer=region.buffer, offset=begin, nbytes=end - begin)
            for one in ready(bytes_):
                if (lane, one.task, one.part) not in self._asked:
                    self._asked.add((lane, one.task, one.part))
                    self._needs[one.task] = None
                    after.append(Dependency(task=one.task, part=one.part, needed_by=part or None))

    def _cut(self, nbytes: int, chunks: int) -> tuple[Part, ...]:
        key = (nbytes, chunks)
        if key not in self._parts:
            bounds = divide(nbytes, chunks, self.layout.unit)
            self._parts[key] = tuple(
                Part(start=start, stop=stop) for start, stop in pairwise(bounds) if stop > start
            )
        return self._parts[key]

    def _segments_of(self, region: Region) -> Segments:
        key = (region.rank, region.buffer)
        found = self._segments.get(key)
        if found is None:
            found = self._segments[key] = Segments(writer=self._entered[region.rank])
        return found

    def _lane_name(self, engine: Engine, number: int) -> str:
        return f"{self._embedding.lane}.{engine}{number % self.engines}"
