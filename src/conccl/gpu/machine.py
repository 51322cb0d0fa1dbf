"""What a process that has the GPU tells of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a fresh process found."""

    name: str
    gpus: int
    versions: dict[str, str]
