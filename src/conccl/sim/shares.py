"""How much of what is shared each running thing gets: weighted max-min fairness, in plain arithmetic.

A resource has a capacity (bytes or SM-nanoseconds per nanosecond). A claim is one running thing: it can go
at ``cap`` at most, uses so much of each resource per unit of progress, and is served in proportion to its
weight, what it can have in flight at once, where a resource is short. What one cannot use the others get.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

ROUNDING = 1.0 + 1e-9
"""Rounding must not turn a resource that is just full into a short one."""


class Resource:
    """Something of which only so much can be used at a time."""

    __slots__ = ("capacity", "name")

    def __init__(self, *, name: str, capacity: float) -> None:
        self.name = name
        self.capacity = capacity
        """Per nanosecond."""


class Claim(Protocol):
    """Something that runs: what `fair_rates` needs to know of it."""

    @property
    def cap(self) -> float:
        """Progress per nanosecond with nothing short."""
        ...

    @property
    def weight(self) -> float:
        """Progress per nanosecond that its requests in flight are good for; above 0."""
        ...

    @property
    def uses(self) -> Sequence[tuple[Resource, float]]:
        """What a unit of progress takes of each resource; a resource stands once."""
        ...


def fair_rates(claims: Sequence[Claim], /) -> list[float]:
    """Progress per nanosecond of each claim: bottleneck after bottleneck, the tightest first."""
    rates = [claim.cap for claim in claims]
    users = _users(claims)
    short = {
        resource: who
        for resource, who in users.items()
        if sum(amount * rates[index] for index, amount in who) > resource.capacity * ROUNDING
    }
    left = {resource: resource.capacity for resource in short}
    settled = [False] * len(claims)
    while short:
        levels = {resource: _level(left[resource], who, claims) for resource, who in short.items()}
        tightest = min(levels, key=lambda resource: levels[resource])
        if levels[tightest] == math.inf:
            break
        for index, _ in short[tightest]:
            rates[index] = min(claims[index].cap, levels[tightest] * claims[index].weight)
            settled[index] = True
            for resource, amount in claims[index].uses:
                if resource in left:
                    left[resource] = max(0.0, left[resource] - amount * rates[index])
        short = {
            resource: [(index, amount) for index, amount in who if not settled[index]]
            for resource, who in short.items()
            if resource is not tightest
        }
        short = {resource: who for resource, who in short.items() if who}
    return rates


def _users(claims: Sequence[Claim]) -> dict[Resource, list[tuple[int, float]]]:
    users: dict[Resource, list[tuple[int, float]]] = {}
    for index, claim in enumerate(claims):
        for resource, amount in claim.uses:
            if amount > 0:
                users.setdefault(resource, []).append((index, amount))
    return users


def _level(capacity: float, who: Sequence[tuple[int, float]], claims: Sequence[Claim]) -> float:
    """The level at which ``min(cap, level * weight)`` of all users just fills the capacity."""
    need = sorted(
        (claims[index].cap / claims[index].weight, amount * claims[index].weight) for index, amount in who
    )
    wanting = list(accumulate(slope for _, slope in reversed(need)))
    level = 0.0
    for full_at, slope in need:
        slopes = wanting.pop()
        if slopes * full_at >= capacity * ROUNDING:
            return max(level, capacity / slopes)  # what is left after others may be rounded away
        capacity = max(0.0, capacity - slope * full_at)
        level = full_at
    return math.inf
