"""What a checker found: a record that names ranks and calls, and says in a sentence what is wrong."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from conccl.core.errors import PlanError


class FindingKind(enum.StrEnum):
    """What is wrong."""

    RACE = "race"
    """Two tasks touch the same bytes, one of them writes, and nothing orders them."""
    UNWRITTEN = "unwritten"
    """Bytes are read that nobody has written."""
    OUT_OF_BOUNDS = "out_of_bounds"
    """A task touches bytes that no buffer of the plan has."""
    OVERLAP = "overlap"
    """One task reads and writes bytes that overlap without being the same."""
    OUTSIDE = "outside"
    """A rank's bytes are touched before it has entered the collective or after it has left."""
    MISSING = "missing"
    """Bytes of an output never arrive."""
    WRONG = "wrong"
    """Other bytes arrive than should, or they are reduced in another way."""
    TWICE = "twice"
    """The same bytes arrive more than once."""
    MISMATCH = "mismatch"
    """Ranks disagree on what a call is."""
    ABSENT = "absent"
    """A rank of the group never issues a call that others wait in."""
    DEADLOCK = "deadlock"
    """Calls wait for each other, however fast or slow ranks are."""
    POSSIBLE_DEADLOCK = "possible_deadlock"
    """Calls wait for each other if ranks happen to start them in an unlucky order."""
    UNDECIDED = "undecided"
    """There are too many orders to try them all, and none that was tried hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    kind: FindingKind
    ranks: tuple[int, ...]
    calls: tuple[str, ...]
    """Ids of tasks, or calls as ``group#number``."""
    sentence: str


def require_ok(findings: Iterable[Finding], /) -> None:
    """Raise a `PlanError` that says what was found; nothing where nothing was."""
    found = list(findings)
    if found:
        more = f" (and {len(found) - 1} more findings)" if len(found) > 1 else ""
        raise PlanError(f"{found[0].sentence}{more}")
