"""A pair: computation and communication that could run at the same time, or where one feeds the other."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from conccl.core.ops import Communication, Compute


class Dependence(enum.StrEnum):
    """Whether one side of a pair needs the other's result."""

    NONE = "none"
    COMPUTE_FEEDS_COMMUNICATION = "compute_feeds_communication"
    COMMUNICATION_FEEDS_COMPUTE = "communication_feeds_compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What ConCCL calls a C3 scenario: one compute op beside one communication op."""

    compute: Compute
    communication: Communication
    dependence: Dependence = Dependence.NONE
    source: str = ""
    """Where in the model it comes from."""
