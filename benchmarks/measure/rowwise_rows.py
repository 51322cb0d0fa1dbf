"""Operators that reduce: sums, norms, softmax, losses forward and backward; and sorts and scans."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from backward import backward_of
from graphs import Call
from pool import Pool
from rows import Row
from torch import Tensor
from torch.nn import functional

BF16, FP32 = torch.bfloat16, torch.float32
NAMES = {BF16: "bf16", FP32: "fp32"}
ROWS = (1, 16, 128, 512, 1000, 1576, 2048, 4096, 8192, 16384, 65536)
COLS = (64, 128, 512, 768, 1000, 1023, 1024, 1600, 2048, 3072, 4096, 5120, 8192, 12288, 16384, 32768)
WIDE = (30522, 32000, 50257, 128256)
NUMEL = (1 << 14, 1 << 28)
"""Fewest and most elements of a row-wise row."""

Operator = Callable[..., Tensor]


def rowwise_rows() -> list[Row]:
    """All of them."""
    draw = random.Random(13)
    return [*_norms(draw), *_image_norms(), *_losses(), *_reductions(draw), *_orders()]


def _both(
    op: str, function: Operator, shapes: list[tuple[int, ...]], /, *, dtype: torch.dtype, **key: object
) -> Iterator[Row]:
    """Forward and backward of a function of tensors of these shapes, the first as large as the result."""
    numel = 1
    for side in shapes[0]:
        numel *= side

    def forward(pool: Pool) -> Call:
        inputs = [pool.take(*shape, dtype=dtype) for shape in shapes]
        return lambda: function(*inputs)

    def backward(pool: Pool) -> Call:
        return backward_of(function, [pool.take(*shape, dtype=dtype) for shape in shapes], pool=pool)

    key = {"op": op, **key, "dtype": NAMES[dtype]}
    nbytes = numel * dtype.itemsize
    yield Row(key=key, make=forward, nbytes=2 * nbytes)
    yield Row(key={**key, "direction": "backward"}, make=backward, nbytes=3 * nbytes)


def _grid(draw: random.Random, count: int, *, wide: bool) -> list[tuple[int, int]]:
    cells = [(r, c) for r in ROWS for c in COLS + (WIDE if wide else ()) if NUMEL[0] <= r * c <= NUMEL[1]]
    return draw.sample(cells, count)


def _norms(draw: random.Random) -> Iterator[Row]:
    for dtype, count in ((BF16, 42), (FP32, 18)):
        for rows, cols in _grid(draw, count, wide=False):
            key = {"rows": rows, "cols": cols}

            def layer(x: Tensor, w: Tensor, b: Tensor, cols: int = cols) -> Tensor:
                return functional.layer_norm(x, (cols,), w, b)

            def rms(x: Tensor, w: Tensor, cols: int = cols) -> Tensor:
                return functional.rms_norm(x, (cols,), w)

            yield from _both("layer_norm", layer, [(rows, cols), (cols,), (cols,)], dtype=dtype, **key)
            yield from _both("rms_norm", rms, [(rows, cols), (cols,)], dtype=dtype, **key)
        for rows, cols in _grid(draw, count, wide=True):
            key = {"rows": rows, "cols": cols}
            yield from _both("softmax", lambda x: x.softmax(-1), [(rows, cols)], dtype=dtype, **key)
            yield from _both("log_softmax", lambda x: x.log_softmax(-1), [(rows, cols)], dtype=dtype, **key)


def _image_norms() -> Iterator[Row]:
    shapes = (
        (32, 64, 112),
        (64, 64, 56),
        (32, 256, 56),
        (64, 128, 28),
        (32, 512, 28),
        (64, 1024, 14),
        (64, 2048, 7),
    )
    for n, c, h in (*shapes, (1, 96, 112), (128, 32, 16), (8, 320, 64)):
        for dtype in (BF16, FP32):
            for last in (False, True):
                yield from _batch_norm(n, c, h, dtype=dtype, last=last)
            if c % 32 == 0:

                def group(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
                    return functional.group_norm(x, 32, w, b)

                key = {"n": n, "c": c, "h": h, "w": h, "groups": 32}
                yield from _both("group_norm", group, [(n, c, h, h), (c,), (c,)], dtype=dtype, **key)


def _batch_norm(n: int, c: int, h: int, *, dtype: torch.dtype, last: bool) -> Iterator[Row]:
    """Training mode, with weights and statistics in fp32, as under autocast."""

    def operands(pool: Pool) -> tuple[Operator, list[Tensor]]:
        mean, variance = torch.zeros(c, device=pool.device), torch.ones(c, device=pool.device)
        x = (
            pool.take(n, h, h, c, dtype=dtype).permute(0, 3, 1, 2)
            if last
            else pool.take(n, c, h, h, dtype=dtype)
        )

        def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
            return functional.batch_norm(x, mean, variance, w, b, training=True)

        return norm, [x, pool.take(c, dtype=FP32), pool.take(c, dtype=FP32)]

    def forward(pool: Pool) -> Call:
        norm, inputs = operands(pool)
        return lambda: norm(*inputs)

    def backward(pool: Pool) -> Call:
        norm, inputs = operands(pool)
        return backward_of(norm, inputs, pool=pool)

    key = {"op": "batch_norm", "n": n, "c": c, "h": h, "w": h, "channels_last": last, "dtype": NAMES[dtype]}
    nbytes = n * c * h * h * dtype.itemsize
    yield Row(key=key, make=forward, nbytes=2 * nbytes)
    yield Row(key={**key, "direction": "backward"}, make=backward, nbytes=3 * nbytes)


def _losses() -> Iterator[Row]:
    for rows, classes in (
        (64, 1000),
        (2048, 128),
        (8192, 50257),
        (2048, 128256),
        (4096, 30522),
        (1024, 10000),
    ):
        for dtype in (BF16, FP32):
            nbytes = 2 * rows * classes * dtype.itemsize

            def forward(pool: Pool, r: int = rows, c: int = classes, dtype: torch.dtype = dtype) -> Call:
                x, target = pool.take(r, c, dtype=dtype), pool.ints(r, high=c)
                return lambda: functional.cross_entropy(x, target)

            def backward(pool: Pool, r: int = rows, c: int = classes, dtype: torch.dtype = dtype) -> Call:
                x, target = pool.take(r, c, dtype=dtype), pool.ints(r, high=c)
                return backward_of(lambda t: functional.cross_entropy(t, target), [x], pool=pool)

            key = {"op": "cross_entropy", "rows": rows, "cols": classes, "dtype": NAMES[dtype]}
            yield Row(key=key, make=forward, nbytes=nbytes)
            yield Row(key={**key, "direction": "backward"}, make=backward, nbytes=2 * nbytes)


def _reductions(draw: random.Random) -> Iterator[Row]:
    functions: dict[str, Callable[[Tensor, int], object]] = {
        "sum": lambda x, dim: x.sum(dim),
        "mean": lambda x, dim: x.mean(dim),
        "amax": lambda x, dim: x.amax(dim),
        "max": lambda x, dim: x.max(dim),
        "argmax": lambda x, dim: x.argmax(dim),
        "var": lambda x, dim: x.var(dim),
        "norm": lambda x, dim: torch.linalg.vector_norm(x, dim=dim),
    }
    shapes = [
        *[(1, n, 1) for n in (1 << 12, 1 << 17, 1 << 20, 1 << 24, 1 << 27, 6000001)],
        *[
            (r, c, 1)
            for r, c in ((64, 1000), (512, 768), (4096, 1024), (16384, 4096), (8192, 50257), (65536, 64))
        ],
        *[
            (1, r, c)
            for r, c in ((512, 768), (4096, 1024), (8192, 4096), (16384, 12288), (8192, 50257), (3000, 333))
        ],
        *[(b, s, d) for b, s, d in ((8, 1024, 768), (32, 197, 1024), (256, 49, 512), (64, 3136, 64))],
        *[(b, s, 1) for b, s in ((64 * 2048, 49), (32 * 256, 3136))],
    ]
    for dtype in (BF16, FP32):
        for outer, reduced, inner in shapes:
            names = ["sum", *draw.sample(sorted(functions.keys() - {"sum"}), 3)]
            for name in names:

                def make(
                    pool: Pool,
                    shape: tuple[int, int, int] = (outer, reduced, inner),
                    f: Callable[[Tensor, int], object] = functions[name],
                    dtype: torch.dtype = dtype,
                ) -> Call:
                    x = pool.take(*shape, dtype=dtype)
                    return lambda: f(x, 1)

                key = {"op": name, "outer": outer, "reduced": reduced, "inner": inner, "dtype": NAMES[dtype]}
                yield Row(key=key, make=make, nbytes=outer * (reduced + 1) * inner * dtype.itemsize)


def _orders() -> Iterator[Row]:
    functions: dict[str, Callable[[Tensor], object]] = {
        "topk": lambda x: x.topk(min(8, x.shape[-1])),
        "sort": lambda x: x.sort(-1),
        "cumsum": lambda x: x.cumsum(-1),
        "argsort": lambda x: x.argsort(-1),
    }
    for rows, cols in ((1, 1 << 20), (16, 128256), (512, 4096), (4096, 256), (16384, 8), (64, 50257)):
        for name, function in functions.items():
            for dtype in (BF16, FP32):

                def make(
                    pool: Pool,
                    shape: tuple[int, int] = (rows, cols),
                    f: Callable[[Tensor], object] = function,
                    dtype: torch.dtype = dtype,
                ) -> Call:
                    x = pool.take(*shape, dtype=dtype)
                    return lambda: f(x)

                key = {"op": name, "rows": rows, "cols": cols, "dtype": NAMES[dtype]}
                yield Row(key=key, make=make, nbytes=4 * rows * cols * dtype.itemsize)
