"""A step of a program as a GPU sees it: kernels on streams, and the host calls that launch them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from conccl.core.ops import Op


class Modelled(enum.Enum):
    """Whether the kernel table knows an op."""

    YES = "yes"
    BOUND = "bound"
    """No: the kernel stands for the least traffic that the op can do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel, copy or memset, not yet placed."""

    name: str
    op: Op
    modelled: Modelled = Modelled.YES


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """A kernel on a stream."""

    kernel: Kernel
    lane: str
    """The stream's name; kernels of one lane run in order."""
    after: tuple[int, ...] = ()
    """Indices of kernel calls of other lanes that must be complete (events)."""


class Phase(enum.StrEnum):
    """Where a host call comes from: autograd's backward launches from C++, the rest from Python."""

    PYTHON = "python"
    BACKWARD = "backward"
    REPLAY = "replay"
    """A captured graph: one launch for all its kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCall:
    """One op that the host dispatched, with the kernels that it launched."""

    name: str
    phase: Phase
    first: int
    """Index of its first kernel call."""
    count: int
    """Kernel calls; 0 for views and other ops that launch nothing."""
    waits: bool = False
    """The host waits for all that it has launched so far: .item(), a copy to the host, synchronize()."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One step: what the host did and what it launched, in order."""

    kernels: tuple[KernelCall, ...]
    calls: tuple[HostCall, ...]
    warnings: tuple[str, ...] = ()
