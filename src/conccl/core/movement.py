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

    def __post_init__(self) -> None:
        require_not_negative(self, "nbytes")
        require_positive(self, "ranks")

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
class Reduce:
    """Combine equally long sources, in the order given, into a destination of the same rank."""

    sources: tuple[Region, ...]
    destination: Region
    dtype: DType
    reduce_op: ReduceOp = ReduceOp.SUM

    def __post_init__(self) -> None:
        if not self.sources or any(s.nbytes != self.destination.nbytes for s in self.sources):
            raise InputError("a reduce needs one or more sources, each as long as its destination.")

    @property
    def nbytes(self) -> int:
        """Every source read, the destination written."""
        return (len(self.sources) + 1) * self.destination.nbytes

    @property
    def flops(self) -> int:
        """One operation for each element of each source but the first."""
        return (len(self.sources) - 1) * self.destination.nbytes // self.dtype.nbytes
