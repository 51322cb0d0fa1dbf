"""Follows every byte from the inputs to the outputs, symbolically: what arrives where, and how often.

Ranges of bytes with alike contents are one piece, so the cost depends on the number of moves and not on
their size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from conccl.collectives.content import Bytes, Content, Piece, wanted
from conccl.collectives.finding import Finding, FindingKind
from conccl.collectives.layout import Layout, part_of
from conccl.collectives.ordering import reads_and_writes
from conccl.core.ops import Multicast, Reduce, ReduceOp, Region, Swap
from conccl.core.plan import Part, Plan, Steps, Task


class Flow:
    """The state of all buffers while a plan is followed, and what was found on the way."""

    def __init__(self, layout: Layout, /) -> None:
        self.layout = layout
        self.findings: list[Finding] = []
        self._buffers: dict[tuple[int, str], Bytes] = {}
        self._wanted = {rank: list(wanted(layout, position)) for position, rank in enumerate(layout.ranks)}
        self._delivered: dict[int, list[tuple[int, int, str]]] = {rank: [] for rank in layout.ranks}
        self._told: set[tuple[FindingKind, str]] = set()
        for position in range(layout.count):
            given = layout.whole_input(position)
            if given.nbytes:
                self._put(given, Content(terms=((position, 0, 1),)), task="")

    def follow(self, task: Task, part: Part | None, /) -> None:
        """Carry out one step."""
        sources, destinations = reads_and_writes(task)
        if not destinations:
            return
        read = [list(self._read(task, source, part)) for source in sources]
        if isinstance(task.op, Swap):
            read.reverse()
        elif isinstance(task.op, Multicast):
            read *= len(destinations)
        elif isinstance(task.op, Reduce):
            read = [list(self._reduced(task, task.op, read))]
        skip = part.start if part else 0
        for destination, pieces in zip(destinations, read, strict=True):
            for start, stop, content in pieces:
                self._put(part_of(destination, skip + start, stop - start), content, task=task.id)

    def finish(self) -> None:
        """Compare the outputs with what they must hold."""
        for rank, pieces in self._wanted.items():
            for region, content in pieces:
                self._compare(region, content)
            self._tell_twice(rank)

    def _buffer(self, rank: int, name: str) -> Bytes:
        return self._buffers.setdefault((rank, name), Bytes())

    def _read(self, task: Task, region: Region, part: Part | None) -> Iterator[Piece]:
        """Pieces that begin at 0 where the region (or this part of it) does."""
        start = region.offset + (part.start if part else 0)
        stop = region.offset + part.stop if part else region.end
        for begin, end, content in self._buffer(region.rank, region.buffer).read(start, stop):
            if content is None:
                self._tell(
                    FindingKind.UNWRITTEN,
                    (task.rank, region.rank),
                    task.id,
                    f"Task {task.id!r} reads bytes [{begin}, {end}) of {region.buffer!r} of rank"
                    f" {region.rank}, which nobody has written.",
                )
            yield begin - start, end - start, content

    def _reduced(self, task: Task, op: Reduce, read: Sequence[Sequence[Piece]]) -> Iterator[Piece]:
        self._check_op(task, op)
        bounds = sorted({bound for pieces in read for start, stop, _ in pieces for bound in (start, stop)})
        places = [0] * len(read)
        for start, stop in itertools.pairwise(bounds):
            contents: list[Content] = []
            for index, pieces in enumerate(read):
                while pieces[places[index]][1] <= start:
                    places[index] += 1
                begins, _, content = pieces[places[index]]
                if content is not None:
                    contents.append(content.shifted(start - begins))
            whole = len(contents) == len(read)
            yield start, stop, self._sum(task, op, contents) if whole else None

    def _check_op(self, task: Task, op: Reduce) -> None:
        wanted_op = self.layout.collective.reduce_op
        partial = wanted_op is ReduceOp.AVG and op.reduce_op is ReduceOp.SUM
        if (op.reduce_op is not wanted_op and not partial) or op.dtype is not self.layout.collective.dtype:
            self._tell(
                FindingKind.WRONG,
                (task.rank,),
                task.id,
                f"Task {task.id!r} reduces by {op.reduce_op} in {op.dtype}; the collective does by"
                f" {wanted_op} in {self.layout.collective.dtype}.",
            )

    def _sum(self, task: Task, op: Reduce, contents: Sequence[Content]) -> Content:
        times: dict[tuple[int, int], int] = {}
        for content in contents:
            for position, at, count in content.terms:
                times[position, at] = times.get((position, at), 0) + count
        if len({content.divisor for content in contents}) > 1:
            self._tell(
                FindingKind.WRONG,
                (task.rank,),
                task.id,
                f"Task {task.id!r} adds sums to averages.",
            )
        divisor = contents[0].divisor
        if op.reduce_op is ReduceOp.AVG:
            divisor *= op.divisor or len(op.sources)
        terms = tuple(sorted((position, at, count) for (position, at), count in times.items()))
        return Content(terms=terms, divisor=divisor)

    def _put(self, to: Region, content: Content | None, *, task: str) -> None:
        self._buffer(to.rank, to.buffer).write(to.offset, to.end, content)
        if content is None:
            return
        for region, right in self._wanted.get(to.rank, ()):
            start, stop = max(to.offset, region.offset), min(to.end, region.end)
            if (
                region.buffer == to.buffer
                and start < stop
                and content.shifted(start - to.offset) == right.shifted(start - region.offset)
            ):
                self._delivered[to.rank].append((start, stop, task))

    def _compare(self, region: Region, right: Content) -> None:
        for start, stop, content in self._buffer(region.rank, region.buffer).read(region.offset, region.end):
            if content == right.shifted(start - region.offset):
                continue
            where = f"Bytes [{start}, {stop}) of {region.buffer!r} of rank {region.rank}"
            if content is None:
                self._tell(
                    FindingKind.MISSING, (region.rank,), "", f"{where} never get what they should hold."
                )
            else:
                self._tell(
                    FindingKind.WRONG,
                    (region.rank,),
                    "",
                    f"{where} hold {self._words(content)} instead of"
                    f" {self._words(right.shifted(start - region.offset))}.",
                )

    def _words(self, content: Content) -> str:
        terms = ", ".join(
            f"byte {at} of rank {self.layout.ranks[position]}'s input{f' {times} times' if times > 1 else ''}"
            for position, at, times in content.terms[:4]
        )
        more = f" and {len(content.terms) - 4} others" if len(content.terms) > 4 else ""
        return f"{terms}{more}{f' divided by {content.divisor}' if content.divisor > 1 else ''}"

    def _tell_twice(self, rank: int) -> None:
        reach, by = -1, ""
        for start, stop, task in sorted(self._delivered[rank]):
            if start < reach:
                first = repr(by) if by else "its own input"
                self._tell(
                    FindingKind.TWICE,
                    (rank,),
                    task or by,
                    f"Task {task or by!r} brings bytes [{start}, {min(stop, reach)}) of rank {rank}'s output"
                    f" that {first} has brought already.",
                )
            if stop > reach:
                reach, by = stop, task

    def _tell(self, kind: FindingKind, ranks: Sequence[int], call: str, sentence: str) -> None:
        key = (kind, call or sentence)
        if key not in self._told:
            self._told.add(key)
            calls = (call,) if call else ()
            self.findings.append(
                Finding(kind=kind, ranks=tuple(sorted(set(ranks))), calls=calls, sentence=sentence)
            )


def follow(plan: Plan, steps: Steps, layout: Layout, /) -> list[Finding]:
    """What is wrong with what arrives, if the plan has no races (then every legal order brings the same)."""
    flow = Flow(layout)
    for step in steps.order:
        position = steps.task[step]
        task = plan.tasks[position]
        flow.follow(task, task.parts[step - steps.first[position]] if task.parts else None)
    flow.finish()
    return flow.findings
