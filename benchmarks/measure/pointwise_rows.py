"""Operators that touch each element once: arithmetic, casts, copies, joins, and gathers by index."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from backward import backward_of
from graphs import Call
from pool import Pool
from rows import Row
from torch import Tensor
from torch.nn import functional

BF16, FP32, FP16 = torch.bfloat16, torch.float32, torch.float16
NAMES = {BF16: "bf16", FP32: "fp32", FP16: "fp16", torch.int64: "int64", torch.bool: "bool"}
SIZES = (
    1 << 10,
    1 << 14,
    1 << 17,
    1 << 20,
    1 << 22,
    3 << 22,
    1 << 24,
    1 << 26,
    1 << 28,
    1000003,
    50257 * 1024,
)
FEWER_SIZES = (1 << 12, 1 << 18, 1 << 21, 1 << 23, 1 << 25, 1 << 27, 6291457)

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "relu": functional.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "mul_scalar": lambda x: x * 0.5,
    "add_scalar": lambda x: x + 1.0,
    "square": torch.square,
    "pow3": lambda x: torch.pow(x, 3.0),
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "neg": torch.neg,
    "copy": torch.clone,
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
}
BACKWARD: dict[str, Callable[[Tensor], Tensor]] = {
    name: UNARY[name] for name in ("gelu", "gelu_tanh", "silu", "relu", "tanh", "sigmoid")
}


def pointwise_rows() -> list[Row]:
    """All of them."""
    return [*_arithmetic(), *_broadcasts(), *_masks(), *_casts(), *_strided(), *_joins(), *_gathers()]


def _row(op: str, make: Callable[[Pool], Call], /, *, nbytes: int, dtype: torch.dtype, **key: object) -> Row:
    return Row(key={"op": op, **key, "dtype": NAMES[dtype]}, make=make, nbytes=nbytes)


def _arithmetic() -> Iterator[Row]:
    for dtype, sizes in ((BF16, SIZES), (FP32, FEWER_SIZES)):
        size = dtype.itemsize
        for n in sizes:
            for name, f in UNARY.items():
                yield _row(name, _unary(f, n, dtype), nbytes=2 * n * size, dtype=dtype, numel=n)
            for name, f in BINARY.items():
                yield _row(name, _binary(f, n, dtype), nbytes=3 * n * size, dtype=dtype, numel=n)
        for n in FEWER_SIZES:
            for name, f in BACKWARD.items():
                key = {"numel": n, "direction": "backward"}
                yield _row(name, _backward(f, n, dtype), nbytes=3 * n * size, dtype=dtype, **key)
            yield _row("add_inplace", _in_place(n, dtype), nbytes=3 * n * size, dtype=dtype, numel=n)
            yield _row("fill", _fill(n, dtype), nbytes=n * size, dtype=dtype, numel=n)


def _unary(f: Callable[[Tensor], Tensor], n: int, dtype: torch.dtype) -> Callable[[Pool], Call]:
    def make(pool: Pool) -> Call:
        x = pool.take(n, dtype=dtype)
        return lambda: f(x)

    return make


def _binary(f: Callable[[Tensor, Tensor], Tensor], n: int, dtype: torch.dtype) -> Callable[[Pool], Call]:
    def make(pool: Pool) -> Call:
        x, y = pool.take(n, dtype=dtype), pool.take(n, dtype=dtype)
        return lambda: f(x, y)

    return make


def _backward(f: Callable[[Tensor], Tensor], n: int, dtype: torch.dtype) -> Callable[[Pool], Call]:
    return lambda pool: backward_of(f, [pool.take(n, dtype=dtype)], pool=pool)


def _in_place(n: int, dtype: torch.dtype) -> Callable[[Pool], Call]:
    def make(pool: Pool) -> Call:
        x, y = pool.out(n, dtype=dtype), pool.take(n, dtype=dtype)
        return lambda: x.add_(y)

    return make


def _fill(n: int, dtype: torch.dtype) -> Callable[[Pool], Call]:
    def make(pool: Pool) -> Call:
        x = pool.out(n, dtype=dtype)
        return lambda: x.fill_(0.5)

    return make


def _broadcasts() -> Iterator[Row]:
    for rows, cols in ((512, 768), (4096, 1024), (8192, 4096), (16384, 8192), (3000, 1601), (2048, 50257)):
        key = {"rows": rows, "cols": cols}
        nbytes = 4 * rows * cols
        for name, shape in (("add_row", (cols,)), ("add_column", (rows, 1))):

            def make(pool: Pool, rows: int = rows, cols: int = cols, shape: tuple[int, ...] = shape) -> Call:
                x, y = pool.take(rows, cols), pool.take(*shape)
                return lambda: x + y

            yield _row(name, make, nbytes=nbytes, dtype=BF16, **key)
    for n, c, h in ((32, 64, 112), (32, 256, 56), (32, 512, 28), (64, 2048, 7)):

        def channel(pool: Pool, n: int = n, c: int = c, h: int = h) -> Call:
            x, y = pool.take(n, c, h, h), pool.take(1, c, 1, 1)
            return lambda: x + y

        yield _row("add_channel", channel, nbytes=4 * n * c * h * h, dtype=BF16, n=n, c=c, h=h, w=h)


def _masks() -> Iterator[Row]:
    for n in FEWER_SIZES:
        for dtype in (BF16, FP32):
            size = dtype.itemsize

            def dropout(pool: Pool, n: int = n, dtype: torch.dtype = dtype) -> Call:
                x = pool.take(n, dtype=dtype)
                return lambda: functional.dropout(x, 0.1)

            def dropout_backward(pool: Pool, n: int = n, dtype: torch.dtype = dtype) -> Call:
                x = [pool.take(n, dtype=dtype)]
                return backward_of(lambda t: functional.dropout(t, 0.1), x, pool=pool)

            yield _row("dropout", dropout, nbytes=(2 * size + 1) * n, dtype=dtype, numel=n)
            key = {"numel": n, "direction": "backward"}
            yield _row("dropout", dropout_backward, nbytes=(2 * size + 1) * n, dtype=dtype, **key)

        def where(pool: Pool, n: int = n) -> Call:
            x, y, mask = pool.take(n), pool.take(n), pool.ints(n, high=2).bool()
            return lambda: torch.where(mask, x, y)

        def masked_fill(pool: Pool, n: int = n) -> Call:
            x, mask = pool.take(n), pool.ints(n, high=2).bool()
            return lambda: x.masked_fill(mask, -1.0)

        def compare(pool: Pool, n: int = n) -> Call:
            x, y = pool.take(n), pool.take(n)
            return lambda: x > y

        yield _row("where", where, nbytes=7 * n, dtype=BF16, numel=n)
        yield _row("masked_fill", masked_fill, nbytes=5 * n, dtype=BF16, numel=n)
        yield _row("greater", compare, nbytes=5 * n, dtype=BF16, numel=n)


def _casts() -> Iterator[Row]:
    for n in (*FEWER_SIZES, 1 << 24, 1 << 28):
        for before, after in (
            (BF16, FP32),
            (FP32, BF16),
            (FP16, FP32),
            (torch.int64, FP32),
            (torch.bool, BF16),
        ):
            if n > 1 << 27 and before is torch.int64:
                continue

            def make(
                pool: Pool, n: int = n, before: torch.dtype = before, after: torch.dtype = after
            ) -> Call:
                x = (
                    pool.take(n, dtype=before)
                    if before.is_floating_point
                    else pool.ints(n, high=2).to(before)
                )
                return lambda: x.to(after)

            nbytes = n * (before.itemsize + after.itemsize)
            yield _row("cast", make, nbytes=nbytes, dtype=before, numel=n, to=NAMES[after])


def _strided() -> Iterator[Row]:
    for rows, cols in ((1024, 1024), (4096, 4096), (8192, 1000), (1000, 50257), (16384, 8192), (333, 777)):
        for dtype in (BF16, FP32):

            def transpose(pool: Pool, rows: int = rows, cols: int = cols, dtype: torch.dtype = dtype) -> Call:
                x = pool.take(rows, cols, dtype=dtype)
                return lambda: x.t().contiguous()

            nbytes = 2 * rows * cols * dtype.itemsize
            yield _row("transpose", transpose, nbytes=nbytes, dtype=dtype, rows=rows, cols=cols)
    for b, s, h, d in (
        (8, 1024, 12, 64),
        (1, 8192, 32, 128),
        (32, 512, 16, 64),
        (2, 2048, 64, 128),
        (4, 197, 12, 64),
    ):

        def heads(pool: Pool, b: int = b, s: int = s, h: int = h, d: int = d) -> Call:
            x = pool.take(b, s, h, d)
            return lambda: x.transpose(1, 2).contiguous()

        def third(pool: Pool, b: int = b, s: int = s, h: int = h, d: int = d) -> Call:
            x = pool.take(b * s, 3 * h * d)
            return x[:, h * d : 2 * h * d].contiguous

        def rotate(pool: Pool, b: int = b, s: int = s, h: int = h, d: int = d) -> Call:
            x = pool.take(b, h, s, d)
            return lambda: torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)

        nbytes = 4 * b * s * h * d
        key = {"b": b, "s": s, "h": h, "d": d}
        yield _row("copy_heads", heads, nbytes=nbytes, dtype=BF16, **key)
        yield _row("copy_third", third, nbytes=nbytes, dtype=BF16, **key)
        yield _row("rotate_half", rotate, nbytes=nbytes * 2, dtype=BF16, **key)
    for n, c, h in ((32, 3, 224), (32, 64, 56), (32, 512, 28), (64, 2048, 7)):
        for name in ("to_channels_last", "from_channels_last"):

            def relayout(pool: Pool, n: int = n, c: int = c, h: int = h, name: str = name) -> Call:
                x = (
                    pool.take(n, c, h, h)
                    if name.startswith("to")
                    else pool.take(n, h, h, c).permute(0, 3, 1, 2)
                )
                kind = torch.channels_last if name.startswith("to") else torch.contiguous_format
                return lambda: x.contiguous(memory_format=kind)

            yield _row(name, relayout, nbytes=4 * n * c * h * h, dtype=BF16, n=n, c=c, h=h, w=h)


def _joins() -> Iterator[Row]:
    for count in (2, 3, 8):
        for rows, cols in ((512, 768), (4096, 1024), (8192, 4096), (1001, 333)):
            for dim in (0, 1):

                def cat(
                    pool: Pool, count: int = count, rows: int = rows, cols: int = cols, dim: int = dim
                ) -> Call:
                    parts = [pool.take(rows, cols) for _ in range(count)]
                    return lambda: torch.cat(parts, dim=dim)

                key = {"count": count, "rows": rows, "cols": cols, "dim": dim}
                yield _row("cat", cat, nbytes=4 * count * rows * cols, dtype=BF16, **key)


def _gathers() -> Iterator[Row]:
    for vocabulary, width in ((50257, 768), (128256, 4096), (30522, 1024), (32128, 512), (10000, 650)):
        for tokens in (16, 512, 4096, 16384):
            for dtype in (BF16, FP32):
                key = {"vocabulary": vocabulary, "width": width, "tokens": tokens}
                size = dtype.itemsize

                def embed(
                    pool: Pool,
                    v: int = vocabulary,
                    w: int = width,
                    t: int = tokens,
                    dtype: torch.dtype = dtype,
                ) -> Call:
                    table, ids = pool.take(v, w, dtype=dtype), pool.ints(t, high=v)
                    return lambda: functional.embedding(ids, table)

                def embed_backward(
                    pool: Pool,
                    v: int = vocabulary,
                    w: int = width,
                    t: int = tokens,
                    dtype: torch.dtype = dtype,
                ) -> Call:
                    table, ids = pool.take(v, w, dtype=dtype), pool.ints(t, high=v)
                    return backward_of(lambda x: functional.embedding(ids, x), [table], pool=pool)

                yield _row("embedding", embed, nbytes=2 * tokens * width * size, dtype=dtype, **key)
                nbytes = (vocabulary + tokens) * width * size
                back = {**key, "direction": "backward"}
                yield _row("embedding", embed_backward, nbytes=nbytes, dtype=dtype, **back)
    for rows, cols, taken in (
        (8192, 4096, 2048),
        (65536, 1024, 65536),
        (4096, 768, 100000),
        (1000, 333, 5000),
    ):
        key = {"rows": rows, "cols": cols, "taken": taken}
        for name in ("index_select", "index", "gather", "index_add", "scatter_add", "index_put"):
            make = _indexed(name, rows, cols, taken)
            yield _row(name, make, nbytes=4 * taken * cols, dtype=FP32 if "add" in name else BF16, **key)


def _indexed(name: str, rows: int, cols: int, taken: int) -> Callable[[Pool], Call]:
    def make(pool: Pool) -> Call:
        dtype = FP32 if "add" in name else BF16
        x, ids = pool.take(rows, cols, dtype=dtype), pool.ints(taken, high=rows)
        if name == "index_select":
            return lambda: torch.index_select(x, 0, ids)
        if name == "index":
            return lambda: x[ids]
        into, part = pool.out(rows, cols, dtype=dtype), pool.take(taken, cols, dtype=dtype)
        wide = ids[:, None].expand(taken, cols).contiguous()
        return {
            "gather": lambda: torch.gather(x, 0, wide),
            "index_add": lambda: into.index_add_(0, ids, part),
            "scatter_add": lambda: into.scatter_add_(0, wide, part),
            "index_put": lambda: into.index_put_((ids,), part),
        }[name]

    return make
