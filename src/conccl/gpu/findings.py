"""One line of what `conccl doctor` found: a fact, whether it is well, and what it was seen from."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """Whether a fact is as overlap needs it."""

    OK = "ok"
    INFO = "info"
    """A fact that is neither good nor bad."""
    WARNING = "warning"
    """It works, and something is lost."""
    MISSING = "missing"
    """Not there; the advice says what would bring it."""
    FAILED = "failed"
    """Its probe ended with an error."""
    HUNG = "hung"
    """Its probe did not end in time and was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact about this machine."""

    group: str
    name: str
    state: State
    value: str
    evidence: str = ""
    """What it was read from, or how it was measured."""
    advice: str = ""
    """What to do, where something can be done."""
