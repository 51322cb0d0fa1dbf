"""Ops that move bytes: copies, collectives as a whole, and the moves and reductions that they are made of."""

from __future__ import annotations

from dataclasses import dataclass

from conccl.core.checks import require_not_negative, require_positive
from conccl.core.errors import InputError
from conccl.core.kinds import CollectiveKind, DType, Memory, ReduceOp


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Bytes moved from one memory to another."""

    nbytes: int
    source: Memory = Memory.DEVICE
    destination: Memory = Memory.DEVICE

    def __post_init__(self) -> None:
        require_not_negative(self, "nbytes")

    @property
    def flops(self) -> int:
        """None."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A collective among ``ranks`` ranks, as a whole."""

    kind: CollectiveKind
    nbytes: int
    """Counted as nccl-tests does (see `metrics.bus_factor`)."""
    ranks: int
    dtype: DType = DType.BF16
    reduce_op: ReduceOp = ReduceOp.SUM
    ranks_per_node: int | None = None
    """How many of the ranks share a node; None: as many as fit."""

    def __post_init__(self) -> None:
        require_not_negative(self, "nbytes")
        require_positive(self, "ranks")
        if self.ranks_per_node is not None:
            require_positive(self, "ranks_per_node")

    @property
    def flops(self) -> int:
        """None that matter beside the bytes."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Bytes [offset, offset + nbytes) of a named buffer of one rank."""

    rank: int
    buffer: str
    offset: int
    nbytes: int

    def __post_init__(self) -> None:
        if self.rank < 0 or self.offset < 0 or self.nbytes < 0:
            require_not_negative(self, "rank", "offset", "nbytes")

    @property
    def end(self) -> int:
        """The first byte after it."""
        return self.offset + self.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Copy ``source`` to ``destination``: the step that collective fragments are made of."""

    source: Region
    destination: Region

    def __post_init__(self) -> None:
        if self.source.nbytes != self.destination.nbytes:
            raise InputError(
                f"a move of {self.source.nbytes} bytes into {self.destination.nbytes}: both must be equal."
            )

    @property
    def nbytes(self) -> int:
        """Bytes moved."""
        return self.source.nbytes

    @property
    def flops(self) -> int:
        """None."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Multicast:
    """Copy ``source`` to several destinations by one command that reads it once.

    The broadcast command of AMD's SDMA engines (two destinations, DMA-Latte arXiv:2511.06605) and NVLink
    SHARP multicast. Where the hardware has neither it is one move after the other.
    """

    source: Region
    destinations: tuple[Region, ...]

    def __post_init__(self) -> None:
        if not self.destinations or any(d.nbytes != self.source.nbytes for d in self.destinations):
            raise InputError("a multicast needs one or more destinations, each as long as its source.")

    @property
    def nbytes(self) -> int:
        """Bytes written."""
        return self.source.nbytes * len(self.destinations)

    @property
    def flops(self) -> int:
        """None."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Exchange two regions by one command (the swap command of AMD's SDMA engines, arXiv:2511.06605).

    Both regions are read whole before either is written, so nothing needs staging.
    """

    first: Region
    second: Region

    def __post_init__(self) -> None:
        if self.first.nbytes != self.second.nbytes:
            raise InputError(
                f"a swap of {self.first.nbytes} with {self.second.nbytes} bytes: both must be equal."
            )

    @property
    def nbytes(self) -> int:
        """Bytes moved, both ways together."""
        return 2 * self.first.nbytes

    @property
    def flops(self) -> int:
        """None."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce:
    """Combine equally long sources, in the order given, into a destination.

    Sources may lie on peers (the SMs then read them over the link), and one of them may be the destination.
    """

    sources: tuple[Region, ...]
    destination: Region
    dtype: DType
    reduce_op: ReduceOp = ReduceOp.SUM
    divisor: int | None = None
    """avg only: what the sum is divided by; None: by the number of sources. A ring's last step has one."""

    def __post_init__(self) -> None:
        nbytes = self.destination.nbytes
        if not self.sources or any(source.nbytes != nbytes for source in self.sources):
            raise InputError("a reduce needs one or more sources, each as long as its destination.")
        if nbytes % self.dtype.nbytes:
            raise InputError(f"a reduce of {nbytes} bytes is no whole number of {self.dtype} elements.")
        if self.divisor is not None and (self.divisor < 1 or self.reduce_op is not ReduceOp.AVG):
            raise InputError(
                f"a {self.reduce_op} with divisor {self.divisor}: only avg has one, and it is 1 or more."
            )

    @property
    def nbytes(self) -> int:
        """Every source read, the destination written."""
        return (len(self.sources) + 1) * self.destination.nbytes

    @property
    def flops(self) -> int:
        """One operation for each element of each source but the first."""
        return (len(self.sources) - 1) * self.destination.nbytes // self.dtype.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """Time that the host of a rank needs before it can launch what follows; it uses nothing of the GPU."""

    duration_ns: int

    def __post_init__(self) -> None:
        require_not_negative(self, "duration_ns")

    @property
    def nbytes(self) -> int:
        """None."""
        return 0

    @property
    def flops(self) -> int:
        """None."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A point that tasks of any rank can wait for; it moves no bytes.

    What it waits for on other ranks costs a flag each, all of them one wait (a batched stream wait).
    """

    @property
    def nbytes(self) -> int:
        """None."""
        return 0

    @property
    def flops(self) -> int:
        """None."""
        return 0
