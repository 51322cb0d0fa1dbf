"""What one rank does to carry out a fragment, in order: copies, reductions, waits and progress that it tells.

A program knows no sizes. Its bytes are blocks (`Block`), named by where they lie; how long each is, and how
many pieces a large message passes in, is decided when a call is bound to it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Space(enum.Enum):
    """What kind of memory a block lies in, seen from the rank whose program it is."""

    INPUT = "input"
    """The caller's input; unit k is its k-th block."""
    OUTPUT = "output"
    """The caller's output; unit k is its k-th block."""
    STAGING = "staging"
    """A rank's part of the memory that all of them share, as many equal units as the program needs."""
    SCRATCH = "scratch"
    """The rank's own, as many equal units as the program needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Where bytes lie: from this unit on."""

    space: Space
    unit: int
    rank: int = -1
    """Whose: of staging, always said; of other memory another rank's where it is read there, else -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Which blocks of the collective bytes are: [first, stop) as the compiler numbers them."""

    first: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Bytes from one place to another."""

    destination: Block
    source: Block
    content: Content


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine:
    """A reduction of sources in the order given; ``divisor`` where the result is an average."""

    destination: Block
    sources: tuple[Block, ...]
    content: Content
    divisor: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """Go on when this rank has completed so many of its steps."""

    rank: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Tell all ranks that so many of one's own steps are complete."""

    steps: int


Instruction = Copy | Combine | Await | Publish


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One rank's share of a fragment."""

    rank: int
    instructions: tuple[Instruction, ...]
    release: tuple[Await, ...]
    """What must have happened before this rank's staging may be used for something else."""
    scratch_units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """A fragment compiled for all ranks."""

    label: str
    """The fragment's: which collective, by which algorithm."""
    of_rank: tuple[Program, ...]
    staging_units: int
    """Units of shared staging that a rank needs at most; all units of a tile are equally long."""
