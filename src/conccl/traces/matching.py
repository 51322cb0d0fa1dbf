"""Which call on one rank is which call on another.

Rules. Calls belong together by process group, kind and running number within the group. Where traces record
no number, the calls of one group and kind are paired in the order in which they ran; where they record no
group, so are those of one kernel name over all ranks. Captures need not begin at the same call: order pairs
the runs of calls at that shift at which their ends agree best, and is believed only where they agree far
better than neighbouring calls would. Point-to-point calls (send, recv) are not matched.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.kinds import CollectiveKind
from conccl.core.timeline import Ids, Times

SHARED_CLOCK_NS = 50_000
"""Ranks whose collectives end within this of each other share a clock: on one host they agree within 10 us,
hosts that are not synchronised differ by a ms and more."""

SHIFTS = 8
"""Calls by which the captures of two ranks may begin apart, beyond the difference of their counts."""

FARTHEST = 1000
"""Captures whose counts of calls differ by more are not paired by order."""

ENOUGH = 3
"""Calls from which on a constant offset of clocks can be told from a wrong pairing."""

CLEARLY = 4
"""A pairing by order is believed where its ends agree this many times better than the calls' period."""

_TOGETHER = frozenset(
    {
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.BARRIER,
    }
)
"""Kinds that no rank leaves before the last has come."""

_POINT_TO_POINT = frozenset({CollectiveKind.SEND, CollectiveKind.RECV})

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLabel:
    """What calls that are counted together have in common; None wherever the trace says nothing."""

    name: str
    """The kernel's."""
    kind: CollectiveKind | None
    group: str | None
    group_ranks: tuple[int, ...] | None
    group_size: int | None
    nbytes: int | None

    @property
    def synchronises(self) -> bool:
        """Whether its shortest rank's duration is the transfer: no rank leaves before the last has come.

        A kernel of no stated kind is taken to: what communicates without metadata are custom all-reduces,
        all-to-alls by NCCL's SendRecv, and expert dispatch.
        """
        return self.kind is None or self.kind in _TOGETHER


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankCalls:
    """The communication kernels of one rank, by start: all that is needed of a rank to match it."""

    rank: int
    start_ns: Times
    end_ns: Times
    label: Ids
    """Index into ``labels``."""
    labels: tuple[CallLabel, ...]
    sequence: Times
    """Running number within the group; -1: not recorded."""
    ctas: Times
    step: Ids
    """Index into the rank's steps; -1: not known."""

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matches:
    """Which calls are one: equal numbers on different ranks."""

    of_rank: Mapping[int, Rows]
    """For each rank, the number of the match that each of its calls is part of; -1: none."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """What calls must have in common to be one."""

    group: str | None
    group_ranks: tuple[int, ...] | None
    group_size: int | None
    what: str
    """The kind, or the kernel's name where there is none."""


def match(ranks: Sequence[RankCalls], /) -> Matches:
    """Number the calls that belong together; a call is matched where all its ranks have it.

    All its ranks are those of its group that are among ``ranks``, and at least two.
    """
    by_rank = {calls.rank: calls for calls in ranks}
    by_key: dict[_Key, dict[int, Rows]] = defaultdict(dict)
    for calls in ranks:
        for key, rows in _by_key(calls).items():
            by_key[key][calls.rank] = rows
    found = {calls.rank: np.full(len(calls), -1, dtype=np.intp) for calls in ranks}
    count = 0
    for key, members in by_key.items():
        if not _complete(key, present=by_rank.keys(), having=members.keys()):
            continue
        paired = _pair({rank: (by_rank[rank], rows) for rank, rows in members.items()})
        for rank, rows in paired.items():
            found[rank][rows] = count + np.arange(len(rows))
        count += len(next(iter(paired.values()), ()))
    return Matches(of_rank=found, count=count)


def _by_key(calls: RankCalls, /) -> dict[_Key, Rows]:
    """The rank's calls that can be matched at all, in the order in which they ran."""
    keys: dict[_Key, list[int]] = defaultdict(list)
    for index, label in enumerate(calls.labels):
        if label.kind not in _POINT_TO_POINT:
            what = re.split(r"[<(]", label.name, maxsplit=1)[0] if label.kind is None else label.kind
            key = _Key(
                group=label.group, group_ranks=label.group_ranks, group_size=label.group_size, what=what
            )
            keys[key].append(index)
    order = np.argsort(calls.start_ns, kind="stable")
    return {key: order[np.isin(calls.label[order], labels)] for key, labels in keys.items()}


def _complete(key: _Key, /, *, present: Set[int], having: Set[int]) -> bool:
    """Whether these ranks are all that take part and are here; a group's name alone may mean several."""
    if key.group_ranks is not None:
        return len(having) >= 2 and having == present & set(key.group_ranks)
    return len(having) >= 2 and (key.group_size is None or len(having) <= key.group_size)


_Members = dict[int, tuple[RankCalls, Rows]]


def _pair(members: _Members, /) -> dict[int, Rows]:
    """The same number of calls of each rank, those at the same place belonging together."""
    if all((calls.sequence[rows] >= 0).all() for calls, rows in members.values()):
        return _pair_by_sequence(members)
    return _pair_by_order(members)


def _pair_by_sequence(members: _Members, /) -> dict[int, Rows]:
    numbers = {rank: _occurrences(calls.sequence[rows]) for rank, (calls, rows) in members.items()}
    common = sorted(set.intersection(*(set(each) for each in numbers.values())))
    paired = {}
    for rank, (_, rows) in members.items():
        place = {number: index for index, number in enumerate(numbers[rank])}
        paired[rank] = rows[np.array([place[number] for number in common], dtype=np.intp)]
    return paired


def _occurrences(sequence: Times, /) -> list[tuple[int, int]]:
    """Each running number with how often it came before: one call may be several kernels."""
    seen: dict[int, int] = defaultdict(int)
    numbered = []
    for number in sequence.tolist():
        numbered.append((number, seen[number]))
        seen[number] += 1
    return numbered


def _pair_by_order(members: _Members, /) -> dict[int, Rows]:
    ends = {rank: calls.end_ns[rows] for rank, (calls, rows) in members.items()}
    reference = max(ends, key=lambda rank: (len(ends[rank]), -rank))
    shifts = {rank: _shift(ends[rank], ends[reference]) for rank in ends}
    known = {rank: shift for rank, shift in shifts.items() if shift is not None}
    if len(known) < len(members):
        return {}
    first = max(known.values())
    last = min(known[rank] + len(ends[rank]) for rank in known)
    if last <= first:
        return {}
    return {rank: members[rank][1][first - shift : last - shift] for rank, shift in known.items()}


def _shift(ends_ns: Times, reference_ns: Times, /) -> int | None:
    """At which call of the reference the calls begin; None where no shift makes the ends agree."""
    if ends_ns is reference_ns:
        return 0
    spare = len(reference_ns) - len(ends_ns)
    if spare > FARTHEST:
        return None
    few = max(1, len(ends_ns) // 2)
    tries = [
        (shift, difference)
        for shift in range(-SHIFTS, spare + SHIFTS + 1)
        if len(difference := _differences(ends_ns, reference_ns, shift=shift)) >= few
    ]
    tries.sort(key=lambda tried: min(abs(tried[0]), abs(tried[0] - spare)))
    period = float(np.median(np.diff(reference_ns))) if len(reference_ns) > 1 else np.inf
    for scatter in (_from_zero, _from_median):
        shift, difference = min(tries, key=lambda tried: scatter(tried[1]))
        agrees = scatter(difference) <= min(SHARED_CLOCK_NS, period / CLEARLY)
        if agrees and (scatter is _from_zero or len(difference) >= ENOUGH):
            return shift
    return None


def _differences(ends_ns: Times, reference_ns: Times, /, *, shift: int) -> Times:
    first = max(0, -shift)
    last = max(first, min(len(ends_ns), len(reference_ns) - shift))
    return ends_ns[first:last] - reference_ns[first + shift : last + shift]


def _from_zero(differences: Times, /) -> float:
    """How far ends are apart where the clocks are one."""
    return float(np.median(np.abs(differences)))


def _from_median(differences: Times, /) -> float:
    """How far ends are apart beyond a constant offset of the clocks."""
    return float(np.median(np.abs(differences - np.median(differences))))
