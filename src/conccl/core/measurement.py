"""What a plan took, where, and why it failed if it did.

All samples are kept; every statistic is derived from them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np

from conccl.core.errors import InputError


class Status(enum.StrEnum):
    """How a measurement ended."""

    OK = "ok"
    WRONG_RESULT = "wrong_result"
    OUT_OF_MEMORY = "out_of_memory"
    UNSUPPORTED = "unsupported"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    THROTTLED = "throttled"

    @property
    def sentence(self) -> str:
        """What happened, for a reader."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.OK: "Measured, and the results were right.",
    Status.WRONG_RESULT: "The results differ from the reference by more than the tolerance.",
    Status.OUT_OF_MEMORY: "The device has too little free memory.",
    Status.UNSUPPORTED: "This executor or device cannot run it.",
    Status.TIMEOUT: "It did not end within its time limit.",
    Status.CRASHED: "The process that ran it died.",
    Status.THROTTLED: "Clocks fell while it ran, so its times are not comparable.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where and with what something was measured: what must be alike before times are compared."""

    executor: str
    """sim, gpu or trace."""
    device: str
    gpus: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    """Software by name: conccl, torch, cuda, driver, nccl, triton."""
    emulated: bool = False
    """Several ranks shared one GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All samples of one thing, with status, reason and environment."""

    label: str
    samples_ns: tuple[int, ...]
    environment: Environment
    status: Status = Status.OK
    reason: str = ""
    proved: bool | None = None
    """Whether the strategy was seen to run; None where there is nothing to prove."""
    proof: str = ""

    def __post_init__(self) -> None:
        if self.status is Status.OK and not self.samples_ns:
            raise InputError(f"measurement {self.label!r} is ok but has no samples.")
        if self.status is not Status.OK and not self.reason:
            raise InputError(f"measurement {self.label!r} is {self.status} and must say why.")

    @property
    def median_ns(self) -> int | None:
        """The middle sample; None where there is none."""
        return round(float(np.median(self.samples_ns))) if self.samples_ns else None

    @property
    def relative_iqr(self) -> float | None:
        """Interquartile range over the median: the spread that ten in a hundred is a warning for."""
        if not self.samples_ns:
            return None
        low, middle, high = np.percentile(self.samples_ns, [25, 50, 75])
        return float((high - low) / middle) if middle > 0 else None
