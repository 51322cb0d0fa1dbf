"""Rows of kernels that touch each element once: arithmetic, casts, joins, lookups, updates, copies."""

from __future__ import annotations

from conccl.core.ops import (
    Access,
    Copy,
    DType,
    Elementwise,
    ForEach,
    Fusion,
    Gather,
    Memory,
    Op,
    OptimizerKind,
    OptimizerStep,
    Pass,
)
from conccl.costs.rows.row import Maker, Row


def _unary(row: Row) -> tuple[Op, ...]:
    """One tensor in, one out; backward reads the gradient too."""
    return (elementwise(row.name, row.count("numel"), reads=1, dtype=row.dtype, direction=row.direction),)


def _binary(row: Row) -> tuple[Op, ...]:
    return (elementwise(row.name, row.count("numel"), reads=2, dtype=row.dtype, direction=row.direction),)


def elementwise(
    name: str, numel: int, *, reads: int, dtype: DType, direction: Pass = Pass.FORWARD, writes: int = 1
) -> Elementwise:
    """A dense elementwise op on so many tensors of one type."""
    backward = direction is Pass.BACKWARD
    return Elementwise(
        name=f"{name}_backward" if backward else name,
        read_nbytes=(reads + backward) * numel * dtype.nbytes,
        written_nbytes=writes * numel * dtype.nbytes,
        numel=numel,
    )


def _fill(row: Row) -> tuple[Op, ...]:
    return (elementwise("fill", row.count("numel"), reads=0, dtype=row.dtype),)


def _dropout(row: Row) -> tuple[Op, ...]:
    numel, size = row.count("numel"), row.dtype.nbytes
    if row.direction is Pass.BACKWARD:
        return (
            Elementwise(
                name="dropout_backward",
                read_nbytes=numel * (size + 1),
                written_nbytes=numel * size,
                numel=numel,
            ),
        )
    return (
        Elementwise(name="dropout", read_nbytes=numel * size, written_nbytes=numel * (size + 1), numel=numel),
    )


def _masked(row: Row) -> tuple[Op, ...]:
    """A boolean tensor beside one or two of values; masked_fill copies its values first."""
    numel, size = row.count("numel"), row.dtype.nbytes
    tensors = 2 if row.name == "where" else 1
    masked = Elementwise(
        name=row.name,
        read_nbytes=numel * (tensors * size + 1),
        written_nbytes=numel * size,
        numel=numel,
    )
    if row.name == "where":
        return (masked,)
    return (elementwise("copy", numel, reads=1, dtype=row.dtype), masked)


def _compare(row: Row) -> tuple[Op, ...]:
    numel = row.count("numel")
    return (
        Elementwise(
            name=row.name,
            read_nbytes=2 * numel * row.dtype.nbytes,
            written_nbytes=numel,
            numel=numel,
        ),
    )


def _cast(row: Row) -> tuple[Op, ...]:
    numel, to = row.count("numel"), row.choice("to", DType, DType.FP32)
    narrowing = row.dtype is DType.FP32 and to in (DType.BF16, DType.FP16)  # has vector loads of its own
    return (
        Elementwise(
            name="cast",
            read_nbytes=numel * row.dtype.nbytes,
            written_nbytes=numel * to.nbytes,
            numel=numel,
            access=Access.CONTIGUOUS if narrowing else Access.CASTING,
        ),
    )


def _broadcast(row: Row) -> tuple[Op, ...]:
    """A full tensor and a small one."""
    if row.name == "add_channel":
        numel, small = row.count("n") * row.count("c") * row.count("h") * row.count("w"), row.count("c")
    else:
        numel = row.count("rows") * row.count("cols")
        small = row.count("cols" if row.name == "add_row" else "rows")
    size = row.dtype.nbytes
    return (
        Elementwise(
            name=row.name,
            read_nbytes=(numel + small) * size,
            written_nbytes=numel * size,
            numel=numel,
            access=Access.STRIDED,
        ),
    )


def _moved(row: Row) -> tuple[Op, ...]:
    """A copy into another order."""
    if "rows" in row:
        numel = row.count("rows") * row.count("cols")
    elif "b" in row:
        numel = row.count("b") * row.count("s") * row.count("h") * row.count("d")
    else:
        numel = row.count("n") * row.count("c") * row.count("h") * row.count("w")
    nbytes = numel * row.dtype.nbytes
    apart = row.name in ("transpose", "to_channels_last", "from_channels_last")
    if "c" in row and row.count("c") < 8:  # neighbours in one order stay close in the other
        apart = False
    return (
        Elementwise(
            name=row.name,
            read_nbytes=nbytes,
            written_nbytes=nbytes,
            numel=numel,
            access=Access.TRANSPOSED if apart else Access.STRIDED,
        ),
    )


def _rotate(row: Row) -> tuple[Op, ...]:
    """Half of the last dimension negated, then both halves joined."""
    numel = row.count("b") * row.count("s") * row.count("h") * row.count("d")
    nbytes = numel * row.dtype.nbytes
    half = Elementwise(
        name="neg",
        read_nbytes=nbytes // 2,
        written_nbytes=nbytes // 2,
        numel=numel // 2,
        access=Access.STRIDED,
    )
    return (half, _joined(nbytes, numel, access=Access.STRIDED))


def _cat(row: Row) -> tuple[Op, ...]:
    numel = row.count("count") * row.count("rows") * row.count("cols")
    return (_joined(numel * row.dtype.nbytes, numel),)


def _joined(nbytes: int, numel: int, *, access: Access = Access.CONTIGUOUS) -> Elementwise:
    return Elementwise(name="cat", read_nbytes=nbytes, written_nbytes=nbytes, numel=numel, access=access)


def _embedding(row: Row) -> tuple[Op, ...]:
    return (
        Gather(
            rows=row.count("tokens"),
            cols=row.count("width"),
            table_rows=row.count("vocabulary"),
            direction=row.direction,
            dtype=row.dtype,
        ),
    )


def _indexed(row: Row) -> tuple[Op, ...]:
    """Rows by number; writes by number and element-wise gathers touch every element for itself."""
    rows, cols, taken = row.count("rows"), row.count("cols"), row.count("taken")
    if row.name in ("index_select", "index"):
        return (Gather(rows=taken, cols=cols, table_rows=rows, dtype=row.dtype),)
    nbytes = taken * cols * row.dtype.nbytes
    reads = 1 if row.name == "index_put" else 2
    return (
        Elementwise(
            name=row.name,
            read_nbytes=reads * nbytes,
            written_nbytes=nbytes,
            numel=taken * cols,
            access=Access.STRIDED if row.name in ("index_put", "gather_rows") else Access.TRANSPOSED,
        ),
    )


_FOREACH = {
    "foreach_mul": (1, 1),
    "foreach_lerp": (2, 1),
    "foreach_addcmul": (2, 1),
    "foreach_sqrt": (1, 1),
    "foreach_addcdiv": (3, 1),
    "foreach_add": (2, 1),
    "foreach_norm": (1, 0),
}
"""Tensors read and written by one kernel over many tensors."""


def _foreach(row: Row) -> tuple[Op, ...]:
    reads, writes = _FOREACH[row.name]
    return (
        ForEach(
            name=row.name,
            numel=row.count("numel"),
            tensors=row.count("tensors"),
            reads=reads,
            writes=writes,
            dtype=row.dtype,
        ),
    )


def _fused_adamw(row: Row) -> tuple[Op, ...]:
    return (
        OptimizerStep(
            kind=OptimizerKind.ADAMW,
            numel=row.count("numel"),
            tensors=row.count("tensors", 1),
            fusion=Fusion.FUSED,
            dtype=row.dtype,
            state_dtype=row.dtype,
        ),
    )


_COPIES = {
    "copy_host_to_device": (Memory.HOST, Memory.DEVICE),
    "copy_device_to_host": (Memory.DEVICE, Memory.HOST),
    "copy_device_to_device": (Memory.DEVICE, Memory.DEVICE),
}


def _copied(row: Row) -> tuple[Op, ...]:
    source, destination = _COPIES[row.name]
    return (Copy(nbytes=row.count("nbytes"), source=source, destination=destination),)


def _memset(row: Row) -> tuple[Op, ...]:
    nbytes = row.count("nbytes")
    return (Elementwise(name="memset", read_nbytes=0, written_nbytes=nbytes, numel=nbytes),)


_UNARY = (
    *("gelu", "gelu_tanh", "silu", "relu", "tanh", "sigmoid", "mul_scalar", "add_scalar", "square"),
    *("pow3", "rsqrt", "exp", "neg", "copy"),
)

POINTWISE: dict[str, Maker] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(("add", "mul", "div", "maximum", "add_inplace"), _binary),
    "fill": _fill,
    "dropout": _dropout,
    **dict.fromkeys(("where", "masked_fill"), _masked),
    "greater": _compare,
    "cast": _cast,
    **dict.fromkeys(("add_row", "add_column", "add_channel"), _broadcast),
    **dict.fromkeys(
        ("transpose", "copy_heads", "copy_third", "to_channels_last", "from_channels_last"), _moved
    ),
    "rotate_half": _rotate,
    "cat": _cat,
    "embedding": _embedding,
    **dict.fromkeys(
        ("index_select", "index", "gather_rows", "index_add", "scatter_add", "index_put"), _indexed
    ),
    **dict.fromkeys(_FOREACH, _foreach),
    "fused_adamw": _fused_adamw,
    **dict.fromkeys(_COPIES, _copied),
    "memset": _memset,
}
