"""What is run: computation, communication and copies as values, with the work that they are.

An op says nothing about where, when or how it runs. ``flops`` counts a multiply and an add as two;
``nbytes`` is the least traffic to memory, each input read once and each output written once.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from conccl.core.errors import InputError


class DType(enum.StrEnum):
    """Element types, by the names that users type."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"
    TF32 = "tf32"
    FP64 = "fp64"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return _NBYTES[self]


_NBYTES = {
    DType.BF16: 2,
    DType.FP16: 2,
    DType.FP32: 4,
    DType.TF32: 4,
    DType.FP64: 8,
    DType.FP8_E4M3: 1,
    DType.FP8_E5M2: 1,
    DType.INT8: 1,
    DType.UINT8: 1,
    DType.INT16: 2,
    DType.INT32: 4,
    DType.INT64: 8,
    DType.BOOL: 1,
}


class CollectiveKind(enum.StrEnum):
    """Collectives, by their torch.distributed names."""

    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND = "send"
    RECV = "recv"
    BARRIER = "barrier"


class ReduceOp(enum.StrEnum):
    """What a reducing collective does with the ranks' values."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"


class Pass(enum.StrEnum):
    """Which way through the network an op goes."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Memory(enum.StrEnum):
    """Where bytes lie, seen from one GPU."""

    DEVICE = "device"
    HOST = "host"
    PEER = "peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """out[m, n] = a[m, k] x b[n, k]^T, ``batch`` times."""

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: DType = DType.BF16
    out_dtype: DType | None = None
    """None: the same as the inputs, or bf16 where those are fp8 (what torch._scaled_mm gives)."""

    def __post_init__(self) -> None:
        _require_positive(self, "m", "n", "k", "batch")

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
        if self.out_dtype is not None:
            return self.out_dtype
        return DType.BF16 if self.dtype in (DType.FP8_E4M3, DType.FP8_E5M2) else self.dtype


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

    def __post_init__(self) -> None:
        _require_positive(self, "batch", "heads", "kv_heads", "queries", "keys", "head_dim")

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
    numel: int = 0
    """Elements written: what the kernel's grid is made for. 0: unknown, taken from the bytes."""

    def __post_init__(self) -> None:
        _require_not_negative(self, "read_nbytes", "written_nbytes", "flops", "numel")

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""
        return self.read_nbytes + self.written_nbytes


class RowwiseKind(enum.StrEnum):
    """Kernels that reduce along each row."""

    LAYER_NORM = "layer_norm"
    RMS_NORM = "rms_norm"
    SOFTMAX = "softmax"
    LOG_SOFTMAX = "log_softmax"
    BATCH_NORM = "batch_norm"
    GROUP_NORM = "group_norm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rowwise:
    """A norm or softmax over [rows, cols]."""

    kind: RowwiseKind
    rows: int
    cols: int
    direction: Pass = Pass.FORWARD
    dtype: DType = DType.BF16

    def __post_init__(self) -> None:
        _require_positive(self, "rows", "cols")

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

    def __post_init__(self) -> None:
        _require_positive(self, "outer", "reduced", "inner")

    @property
    def flops(self) -> int:
        """One operation an element."""
        return self.outer * self.reduced * self.inner

    @property
    def nbytes(self) -> int:
        """The input read, the result written."""
        return (self.outer * self.reduced * self.inner + self.outer * self.inner) * self.dtype.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Bytes moved from one memory to another."""

    nbytes: int
    source: Memory = Memory.DEVICE
    destination: Memory = Memory.DEVICE

    def __post_init__(self) -> None:
        _require_not_negative(self, "nbytes")

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
        _require_not_negative(self, "nbytes")
        _require_positive(self, "ranks")

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
        _require_not_negative(self, "rank", "offset", "nbytes")

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


Compute = Gemm | Attention | Elementwise | Rowwise | Reduction
Communication = Collective | Copy | Move | Reduce
Op = Compute | Communication


def _require_positive(op: object, *names: str) -> None:
    for name in names:
        value = getattr(op, name)
        if value < 1:
            raise InputError(f"{type(op).__name__}.{name} is {value}; it must be 1 or more.")


def _require_not_negative(op: object, *names: str) -> None:
    for name in names:
        value = getattr(op, name)
        if value < 0:
            raise InputError(f"{type(op).__name__}.{name} is {value}; it must not be negative.")
