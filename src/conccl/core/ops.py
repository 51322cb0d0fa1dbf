"""What is run: computation, communication and copies as values, with the work that they are.

An op says nothing about where, when or how it runs. ``flops`` counts a multiply and an add as two;
``nbytes`` is the least traffic to memory, each input read once and each output written once.
"""

from __future__ import annotations

from dataclasses import dataclass

from conccl.core.checks import require_not_negative, require_positive
from conccl.core.errors import InputError
from conccl.core.kinds import (
    Access,
    AttentionBackend,
    CollectiveKind,
    ConvolutionPass,
    DType,
    Fusion,
    Layout,
    Memory,
    OptimizerKind,
    OrderKind,
    Pass,
    RecurrentKind,
    ReduceOp,
    RowwiseKind,
)
from conccl.core.layers import Convolution, ForEach, Gather, OptimizerStep, Order, Pooling, Recurrent
from conccl.core.movement import Collective, Copy, HostWork, Move, Multicast, Reduce, Region, Signal, Swap

__all__ = [
    "Access",
    "Attention",
    "AttentionBackend",
    "Collective",
    "CollectiveKind",
    "Communication",
    "Compute",
    "Convolution",
    "ConvolutionPass",
    "Copy",
    "DType",
    "Elementwise",
    "ForEach",
    "Fusion",
    "Gather",
    "Gemm",
    "GroupedGemm",
    "HostWork",
    "Layout",
    "Memory",
    "Move",
    "Multicast",
    "Op",
    "OptimizerKind",
    "OptimizerStep",
    "Order",
    "OrderKind",
    "Pass",
    "Pooling",
    "Recurrent",
    "RecurrentKind",
    "Reduce",
    "ReduceOp",
    "Reduction",
    "Region",
    "Rowwise",
    "RowwiseKind",
    "Signal",
    "Swap",
    "Warm",
    "output_dtype",
]


def output_dtype(dtype: DType, /) -> DType:
    """What a GEMM of these inputs writes unless told otherwise."""
    return DType.BF16 if dtype in (DType.FP8_E4M3, DType.FP8_E5M2) else dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """out[m, n] = a[m, k] x b[n, k]^T, ``batch`` times; ``layout`` says how a and b lie in memory."""

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: DType = DType.BF16
    out_dtype: DType | None = None
    """None: the same as the inputs, or bf16 where those are fp8 (what torch._scaled_mm gives)."""
    layout: Layout = Layout.NT

    def __post_init__(self) -> None:
        require_positive(self, "m", "n", "k", "batch")

    @property
    def flops(self) -> int:
        """2 m n k for every batch entry."""
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def nbytes(self) -> int:
        """A and B read once, the output written once."""
        inputs = (self.m * self.k + self.n * self.k) * self.dtype.nbytes
        return self.batch * (inputs + self.m * self.n * self.output_dtype.nbytes)

    @property
    def output_dtype(self) -> DType:
        """The element type that is written."""
        return output_dtype(self.dtype) if self.out_dtype is None else self.out_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemm:
    """One kernel of GEMMs that differ in their rows: the experts of a mixture."""

    rows: tuple[int, ...]
    """m of each; an expert may have none."""
    n: int
    k: int
    dtype: DType = DType.BF16
    layout: Layout = Layout.NT

    def __post_init__(self) -> None:
        require_positive(self, "n", "k")
        if not self.rows or any(not rows >= 0 for rows in self.rows):
            raise InputError(
                f"GroupedGemm.rows is {self.rows}; it must name one or more counts, none negative."
            )

    @property
    def flops(self) -> int:
        """2 m n k of all."""
        return 2 * sum(self.rows) * self.n * self.k

    @property
    def nbytes(self) -> int:
        """Inputs and outputs once, and the matrix of each group that has rows."""
        matrices = sum(1 for rows in self.rows if rows)
        inputs = (sum(self.rows) * self.k + matrices * self.n * self.k) * self.dtype.nbytes
        return inputs + sum(self.rows) * self.n * output_dtype(self.dtype).nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Scaled-dot-product attention as one fused kernel (forward) or a few (backward)."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    """Sequence length of the queries."""
    keys: int
    """Sequence length of the keys and values."""
    head_dim: int
    causal: bool = False
    direction: Pass = Pass.FORWARD
    dtype: DType = DType.BF16
    backend: AttentionBackend = AttentionBackend.DEFAULT
    dropout: bool = False
    """Whether scores are dropped at random: the kernel draws a number for each."""

    def __post_init__(self) -> None:
        require_positive(self, "batch", "heads", "kv_heads", "queries", "keys", "head_dim")

    @property
    def flops(self) -> int:
        """Two GEMMs forward, five backward (FlashAttention recomputes the scores); half where causal."""
        gemms = 2 if self.direction is Pass.FORWARD else 5
        whole = gemms * 2 * self.batch * self.heads * self.queries * self.keys * self.head_dim
        return whole // 2 if self.causal and self.queries == self.keys else whole

    @property
    def nbytes(self) -> int:
        """Q, K, V read and the output written; backward reads those and its gradient and writes three."""
        query = self.batch * self.heads * self.queries * self.head_dim * self.dtype.nbytes
        key = self.batch * self.kv_heads * self.keys * self.head_dim * self.dtype.nbytes
        once = 2 * query + 2 * key
        return once if self.direction is Pass.FORWARD else 2 * once + query


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """A kernel that touches each element once: add, gelu, copy, cast, dropout, an optimizer step."""

    name: str
    read_nbytes: int
    written_nbytes: int
    flops: int = 0
    """Instructions of all elements, twice as many for a multiply and add; 0: as few as a copy has."""
    numel: int = 0
    """Elements written: what the kernel's grid is made for. 0: unknown, taken from the bytes."""
    access: Access = Access.CONTIGUOUS

    def __post_init__(self) -> None:
        require_not_negative(self, "read_nbytes", "written_nbytes", "flops", "numel")

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""
        return self.read_nbytes + self.written_nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rowwise:
    """A norm or softmax over [rows, cols]."""

    kind: RowwiseKind
    rows: int
    cols: int
    direction: Pass = Pass.FORWARD
    dtype: DType = DType.BF16
    interleaved: bool = False
    """Whether rows lie interleaved in memory, as the channels of channels-last images do."""
    together: int = 0
    """Elements of one channel of one image, which lie together: height x width. 0: not known, or no image."""

    def __post_init__(self) -> None:
        require_positive(self, "rows", "cols")

    @property
    def flops(self) -> int:
        """About eight operations an element; none of these kernels is bound by them."""
        return 8 * self.rows * self.cols

    @property
    def nbytes(self) -> int:
        """Read once and written once forward; backward also reads the gradient."""
        tensors = 2 if self.direction is Pass.FORWARD else 3
        return tensors * self.rows * self.cols * self.dtype.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """A reduction of [outer, reduced, inner] along its middle dimension."""

    outer: int
    reduced: int
    inner: int = 1
    dtype: DType = DType.BF16
    name: str = "sum"
    """sum, mean, amax, max, argmax, var, norm ..."""
    pieces: int = 1
    """Runs of memory in which the elements of one result lie: above 1 places are computed one by one."""

    def __post_init__(self) -> None:
        require_positive(self, "outer", "reduced", "inner", "pieces")

    @property
    def flops(self) -> int:
        """One operation an element."""
        return self.outer * self.reduced * self.inner

    @property
    def nbytes(self) -> int:
        """The input read, the result written."""
        return (self.outer * self.reduced * self.inner + self.outer * self.inner) * self.dtype.nbytes


Cold = (
    Gemm
    | GroupedGemm
    | Attention
    | Elementwise
    | Rowwise
    | Reduction
    | Convolution
    | Recurrent
    | Gather
    | Pooling
    | Order
    | ForEach
    | OptimizerStep
)
"""Computation whose operands come from memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warm:
    """Computation that finds a share of what it reads in L2, because kernels just before touched it."""

    op: Cold
    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InputError(f"Warm.share is {self.share}; it must be from 0 to 1.")

    @property
    def flops(self) -> int:
        """Those of the op."""
        return self.op.flops

    @property
    def nbytes(self) -> int:
        """Those of the op, wherever they come from."""
        return self.op.nbytes


Compute = Cold | Warm
Communication = Collective | Copy | Move | Multicast | Swap | Reduce | Signal | HostWork
Op = Compute | Communication
