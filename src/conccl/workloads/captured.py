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
    """One kernel, copy or memset, or one library call that is several, not yet placed."""

    name: str
    """The PyTorch op that runs it, without namespace."""
    op: Op
    launches: int = 1
    """Rows that a profiler shows for it: a library call that is one op here may be several kernels."""
    modelled: Modelled = Modelled.YES


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """A kernel on a stream."""

    kernel: Kernel
    lane: str
    """The stream's name; kernels of one lane run in order."""
    after: tuple[int, ...] = ()
    """Indices of kernel calls of other lanes that must be complete (events)."""
    behind: tuple[str, ...] = ()
    """Other lanes whose kernels of the step before must be complete."""
    cached: float = 0.0
    """Of what it reads, the share that L2 holds because kernels just before touched it."""


class Phase(enum.StrEnum):
    """Where a host call comes from, which decides what it costs the host."""

    PYTHON = "python"
    BACKWARD = "backward"
    """Autograd calls it from C++."""
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
    python_calls: int = 0
    """Python functions of the program and of PyTorch entered since the call before."""
    waits_for: tuple[int, ...] = ()
    """Kernel calls that the host waits for after launching: .item(), copies to the host, synchronize()."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One step: what the host did and what it launched, in order."""

    kernels: tuple[KernelCall, ...]
    calls: tuple[HostCall, ...]
    warnings: tuple[str, ...] = ()

    @property
    def launches(self) -> int:
        """Kernels, copies and memsets as a profiler would count them."""
        return sum(call.kernel.launches for call in self.kernels)
