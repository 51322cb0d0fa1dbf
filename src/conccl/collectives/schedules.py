"""Tries all orders in which calls can start where ranks have too little for all of them at once.

A state is how far every lane of every rank has come and which heads are in flight. Starting a call that no
shortage concerns takes nothing from others, so it is never a choice; only calls on scarce resources are.
Ranks that issue the same calls on the same groups are interchangeable, so states that differ only in which
of them did what are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Key = tuple[str, int]
Lane = Sequence[tuple[Key, Mapping[str, int]]]
"""Calls in order, with what each occupies."""
RankState = tuple[int, ...]
"""For each lane twice the number of calls that are over, plus 1 if the next is in flight."""
State = tuple[RankState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A call that cannot start on a rank, and why."""

    rank: int
    waiting: Key
    resource: str
    holding: tuple[Key, ...]
    """Calls in flight that hold the resource; empty where the call alone needs more than there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of all orders."""

    stuck: tuple[Block, ...]
    """Why the first hanging state that was found hangs; empty: none was."""
    can_end: bool
    """Whether some order ends, or may: not all were tried."""
    truncated: bool
    """Whether there were more states than were tried."""


def explore(
    *,
    lanes: Mapping[int, Sequence[Lane]],
    members: Mapping[Key, frozenset[int]],
    capacity: Mapping[str, int],
    most_states: int,
) -> Outcome:
    """Depth-first over all states, each visited once, the unluckiest choices first."""
    search = _Search(lanes=lanes, members=members, capacity=capacity)
    start = search.settled(tuple((0,) * len(of_rank) for of_rank in lanes.values()))
    seen, ahead = {start}, [start]
    stuck: tuple[Block, ...] = ()
    can_end = False
    while ahead and len(seen) <= most_states and not (stuck and can_end):
        state = ahead.pop()
        choices = search.choices(state)
        if not choices:
            blocks = search.blocks(state)
            can_end = can_end or not blocks
            stuck = stuck or blocks
        for index, lane in choices:
            then = search.settled(_started(state, index, lane))
            if then not in seen:
                seen.add(then)
                ahead.append(then)
    return Outcome(stuck=stuck, can_end=can_end or bool(ahead), truncated=bool(ahead) and not stuck)


def _started(state: State, index: int, lane: int) -> State:
    of_rank = state[index]
    changed = (*of_rank[:lane], of_rank[lane] + 1, *of_rank[lane + 1 :])
    return (*state[:index], changed, *state[index + 1 :])


class _Search:
    """The moves that a state allows; ranks are counted by their index here."""

    def __init__(
        self,
        *,
        lanes: Mapping[int, Sequence[Lane]],
        members: Mapping[Key, frozenset[int]],
        capacity: Mapping[str, int],
    ) -> None:
        self._ranks = list(lanes)
        self._lanes = list(lanes.values())
        self._capacity = capacity
        self._members = members
        self._places = [
            {key: (lane, place) for lane, calls in enumerate(of_rank) for place, (key, _) in enumerate(calls)}
            for of_rank in self._lanes
        ]
        self._holders: dict[Key, list[int]] = {}
        for index, places in enumerate(self._places):
            for key in places:
                self._holders.setdefault(key, []).append(index)
        self._scarce = [self._scarce_for(of_rank) for of_rank in self._lanes]
        self._alike = self._classes()

    def _scarce_for(self, of_rank: Sequence[Lane]) -> frozenset[str]:
        """Resources that the lanes of a rank could want more of at once than there is."""
        most = {
            resource: sum(max((held.get(resource, 0) for _, held in lane), default=0) for lane in of_rank)
            for resource in self._capacity
        }
        return frozenset(resource for resource, wanted in most.items() if wanted > self._capacity[resource])

    def _classes(self) -> list[list[int]]:
        """Ranks that issue the same; members of the same groups then, as every rank issues what it must."""
        classes: dict[str, list[int]] = {}
        for index, of_rank in enumerate(self._lanes):
            same = repr([[(key, sorted(held.items())) for key, held in lane] for lane in of_rank])
            classes.setdefault(same, []).append(index)
        return [indices for indices in classes.values() if len(indices) > 1]

    def settled(self, state: State) -> State:
        """The state after all that no choice can keep from happening."""
        working = [list(of_rank) for of_rank in state]
        while True:
            self._start_all_unconcerned(working)
            over = {
                key
                for _, _, (key, _) in self._flying(working)
                if all(self._in_flight(working, one, key) for one in self._holders[key])
            }
            if not over:
                break
            for key in over:
                for index in self._holders[key]:
                    working[index][self._places[index][key][0]] += 1
        for indices in self._alike:
            for index, of_rank in zip(indices, sorted(working[one] for one in indices), strict=True):
                working[index] = of_rank
        return tuple(tuple(of_rank) for of_rank in working)

    def _start_all_unconcerned(self, working: list[list[int]]) -> None:
        for index, lane, (_, held) in list(self._waiting(working)):
            if not self._scarce[index] & held.keys():
                working[index][lane] += 1

    def choices(self, state: State) -> list[tuple[int, int]]:
        """(rank, lane) of heads that could start now; last those that fewest ranks have started."""
        free = [
            (self._flying_on(state, key), index, lane)
            for index, lane, (key, held) in self._waiting(state)
            if not self._short(state, index, held)
        ]
        return [(index, lane) for _, index, lane in sorted(free, reverse=True)]

    def blocks(self, state: State) -> tuple[Block, ...]:
        """What keeps heads from starting: one ring of them where there is one."""
        blocks = []
        for index, _, (key, held) in self._waiting(state):
            resource = self._short(state, index, held)
            holding = tuple(
                one
                for other, _, (one, used) in self._flying(state)
                if other == index and used.get(resource, 0)
            )
            blocks.append(Block(rank=self._ranks[index], waiting=key, resource=resource, holding=holding))
        return _ring(blocks)

    def _heads(self, state: Sequence[Sequence[int]], *, flying: int) -> Iterator[_Head]:
        for index, of_rank in enumerate(state):
            for lane, come in enumerate(of_rank):
                calls = self._lanes[index][lane]
                if come % 2 == flying and come // 2 < len(calls):
                    yield index, lane, calls[come // 2]

    def _waiting(self, state: Sequence[Sequence[int]]) -> Iterator[_Head]:
        return self._heads(state, flying=0)

    def _flying(self, state: Sequence[Sequence[int]]) -> Iterator[_Head]:
        return self._heads(state, flying=1)

    def _in_flight(self, state: Sequence[Sequence[int]], index: int, key: Key) -> bool:
        lane, place = self._places[index][key]
        return state[index][lane] == 2 * place + 1

    def _flying_on(self, state: State, key: Key) -> int:
        return sum(self._in_flight(state, index, key) for index in self._holders[key])

    def _short(self, state: State, index: int, wanted: Mapping[str, int]) -> str:
        """The resource of which a rank has too little for this too; empty: there is enough of all."""
        for resource, amount in wanted.items():
            held = sum(
                self._lanes[index][lane][come // 2][1].get(resource, 0)
                for lane, come in enumerate(state[index])
                if come % 2
            )
            if resource in self._capacity and held + amount > self._capacity[resource]:
                return resource
        return ""


_Head = tuple[int, int, tuple[Key, Mapping[str, int]]]
"""Rank's index, lane, and the call at the lane's head."""


def _ring(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Blocks of which each holds what the one before waits for; all of them where no such ring is found."""
    for first in blocks:
        chain = [first]
        while chain[-1].holding:
            behind = next((one for one in blocks if one.waiting in chain[-1].holding), None)
            if behind is None:
                break
            if behind in chain:
                return tuple(chain[chain.index(behind) :])
            chain.append(behind)
    return tuple(blocks)
