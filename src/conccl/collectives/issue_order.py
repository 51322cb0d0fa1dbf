"""Finds hangs in the order in which ranks issue collectives, the most frequent bug of overlapping them.

A call is over when all ranks of its group have started it; until then it holds its place on its lane and
whatever else it occupies (SMs, engines) on the ranks that have. Ranks that issue calls of several groups in
different orders, or hold what the other's call needs, wait for each other for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from conccl.collectives.cycles import shortest_cycles
from conccl.collectives.finding import Finding, FindingKind
from conccl.collectives.schedules import Block, Outcome, explore
from conccl.core.errors import InputError
from conccl.core.ops import CollectiveKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective call of one rank."""

    group: str
    number: int
    """Which call on its group; calls with one group and number belong together."""
    kind: CollectiveKind
    nbytes: int | None = None
    """None: not known, and not compared."""
    lane: str = "communication"
    """Calls of a rank on one lane run in the order in which they are issued."""
    occupies: Mapping[str, int] = field(default_factory=dict)
    """What it holds of a rank's bounded resources while it is in flight: ``{"sm": 16}``, ``{"ce": 7}``."""

    @property
    def key(self) -> Key:
        """What all its ranks' calls share."""
        return (self.group, self.number)


Key = tuple[str, int]
Issued = Mapping[int, Sequence[Call]]
"""Rank -> its calls in issue order."""


def check_issue_order(
    issued: Issued,
    /,
    *,
    groups: Mapping[str, Sequence[int]],
    capacity: Mapping[str, int] | None = None,
    queues: int | None = None,
    most_states: int = 20_000,
) -> tuple[Finding, ...]:
    """All that makes these calls hang or disagree; empty where every legal schedule ends.

    ``capacity`` is what a rank has of each resource that calls occupy (a resource that it does not name is
    unbounded). ``queues`` is how many hardware queues a rank's lanes share, round robin by first use (as
    CUDA's connections are); lanes in one queue are one lane. Where resources run short, the outcome can
    depend on which call starts first; all orders are tried, up to ``most_states`` states.
    """
    _check_input(issued, groups)
    lanes = {rank: _lanes(calls, queues) for rank, calls in issued.items()}
    disagreements = [*_mismatches(issued), *_absent(issued, groups)]
    cycles = list(_cycles(issued, lanes))
    if disagreements or cycles or not capacity:
        return (*disagreements, *cycles)
    return tuple(_shortages(issued, groups, capacity, lanes, most_states))


def _check_input(issued: Issued, groups: Mapping[str, Sequence[int]]) -> None:
    for rank, calls in issued.items():
        for call in calls:
            if call.group not in groups:
                raise InputError(
                    f"rank {rank} calls on group {call.group!r}; known groups: {', '.join(sorted(groups))}."
                )
            if rank not in groups[call.group]:
                raise InputError(
                    f"rank {rank} calls on group {call.group!r}, whose ranks are {tuple(groups[call.group])}."
                )


def name(key: Key, /) -> str:
    """How a call is named in findings."""
    return f"{key[0]}#{key[1]}"


def _lanes(calls: Sequence[Call], queues: int | None) -> dict[str, list[Call]]:
    """The calls of a rank by what keeps them in order: their lane, or the queue that it shares."""
    number: dict[str, int] = {}
    lanes: dict[str, list[Call]] = {}
    for call in calls:
        lane = call.lane
        if queues is not None:
            lane = f"queue {number.setdefault(lane, len(number)) % queues}"
        lanes.setdefault(lane, []).append(call)
    return lanes


def _mismatches(issued: Issued) -> Iterator[Finding]:
    """Calls that ranks disagree on, and calls that a rank issues twice."""
    first: dict[Key, tuple[int, Call]] = {}
    for rank, calls in issued.items():
        mine: set[Key] = set()
        for call in calls:
            if call.key in mine:
                yield Finding(
                    kind=FindingKind.MISMATCH,
                    ranks=(rank,),
                    calls=(name(call.key),),
                    sentence=f"Rank {rank} issues call {call.number} of group {call.group!r} twice.",
                )
            mine.add(call.key)
            other_rank, other = first.setdefault(call.key, (rank, call))
            if rank == other_rank or _matches(other, call):
                continue
            yield Finding(
                kind=FindingKind.MISMATCH,
                ranks=(other_rank, rank),
                calls=(name(call.key),),
                sentence=(
                    f"Call {call.number} of group {call.group!r} is {_words(other)} on rank {other_rank} and"
                    f" {_words(call)} on rank {rank}; all ranks must issue the same."
                ),
            )


_PAIRS = {CollectiveKind.SEND: CollectiveKind.RECV, CollectiveKind.RECV: CollectiveKind.SEND}


def _matches(one: Call, other: Call) -> bool:
    sizes = one.nbytes is None or other.nbytes is None or one.nbytes == other.nbytes
    return sizes and one.kind is _PAIRS.get(other.kind, other.kind)


def _words(call: Call) -> str:
    return str(call.kind) if call.nbytes is None else f"{call.kind} of {call.nbytes} bytes"


def _absent(issued: Issued, groups: Mapping[str, Sequence[int]]) -> Iterator[Finding]:
    present: dict[Key, set[int]] = {}
    for rank, calls in issued.items():
        for call in calls:
            present.setdefault(call.key, set()).add(rank)
    for key, ranks in present.items():
        missing = [rank for rank in groups[key[0]] if rank not in ranks]
        if missing:
            yield Finding(
                kind=FindingKind.ABSENT,
                ranks=tuple(missing),
                calls=(name(key),),
                sentence=(
                    f"{_ranks(missing)} never issue{'s' if len(missing) == 1 else ''} call {key[1]} of group"
                    f" {key[0]!r}, in which {_ranks(sorted(ranks))} wait{'s' if len(ranks) == 1 else ''}."
                ),
            )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks))}"


def _cycles(issued: Issued, lanes: Mapping[int, Mapping[str, Sequence[Call]]]) -> Iterator[Finding]:
    """Rings of calls, each issued before the next on some lane of some rank."""
    edges: dict[Key, dict[Key, tuple[int, str]]] = {}
    for rank in issued:
        for lane, calls in lanes[rank].items():
            for before, after in pairwise(calls):
                if before.key != after.key:
                    edges.setdefault(before.key, {}).setdefault(after.key, (rank, lane))
    for cycle in shortest_cycles(edges):
        waits = [
            (before, after, *edges[before][after])
            for before, after in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        ]
        said = "; ".join(
            f"rank {rank} issues {name(before)} before {name(after)} on lane {lane!r}"
            for before, after, rank, lane in waits
        )
        ranks = sorted({rank for _, _, rank, _ in waits})
        yield Finding(
            kind=FindingKind.DEADLOCK,
            ranks=tuple(ranks),
            calls=tuple(name(key) for key in cycle),
            sentence=(
                f"{_ranks(ranks).capitalize()} wait for each other: {said}."
                " Issue them in one order on all ranks, or give each group a lane of its own."
            ),
        )


def _shortages(
    issued: Issued,
    groups: Mapping[str, Sequence[int]],
    capacity: Mapping[str, int],
    lanes: Mapping[int, Mapping[str, Sequence[Call]]],
    most_states: int,
) -> Iterator[Finding]:
    """Calls that can keep each other from starting because a rank has too little of something."""
    outcome = explore(
        lanes={
            rank: [[(c.key, c.occupies) for c in calls] for calls in by.values()]
            for rank, by in lanes.items()
        },
        members={call.key: frozenset(groups[call.group]) for calls in issued.values() for call in calls},
        capacity=capacity,
        most_states=most_states,
    )
    if outcome.stuck:
        yield _stuck(outcome)
    elif outcome.truncated:
        yield Finding(
            kind=FindingKind.UNDECIDED,
            ranks=tuple(issued),
            calls=(),
            sentence=(
                f"These calls can start in more than {most_states} orders; those that were tried end. Check"
                " fewer calls at a time, or raise most_states."
            ),
        )


def _stuck(outcome: Outcome) -> Finding:
    ranks = sorted({block.rank for block in outcome.stuck})
    calls = dict.fromkeys(name(one) for block in outcome.stuck for one in (block.waiting, *block.holding))
    verb = "can hang" if outcome.can_end else "hang"
    return Finding(
        kind=FindingKind.POSSIBLE_DEADLOCK if outcome.can_end else FindingKind.DEADLOCK,
        ranks=tuple(ranks),
        calls=tuple(calls),
        sentence=(
            f"These calls {verb}: {'; '.join(map(_block, outcome.stuck))}. Let calls occupy less, or issue"
            " them on one lane in one order."
        ),
    )


def _block(block: Block) -> str:
    what = f"rank {block.rank} cannot start {name(block.waiting)}"
    if not block.holding:
        return f"{what}, which needs more {block.resource} than a rank has"
    held = " and ".join(map(name, block.holding))
    return f"{what} while {held} hold{'s' if len(block.holding) == 1 else ''} its {block.resource}"
