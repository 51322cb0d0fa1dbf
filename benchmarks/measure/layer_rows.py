"""Whole layers that one library call carries out: attention, convolution, pooling, recurrent networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from backward import backward_of
from graphs import Call
from pool import Pool
from rows import Row
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

BF16, FP32 = torch.bfloat16, torch.float32
NAMES = {BF16: "bf16", FP32: "fp32"}
BACKENDS = {
    "default": None,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}

# b, h, kv_heads, queries, keys, d
ATTENTION = (
    *[
        (8, 12, 12, 1024, 1024, 64),
        (16, 12, 12, 512, 512, 64),
        (32, 12, 12, 128, 128, 64),
        (4, 16, 16, 2048, 2048, 64),
    ],
    *[(1, 32, 32, 2048, 2048, 128), (1, 32, 8, 2048, 2048, 128), (1, 32, 8, 4096, 4096, 128)],
    *[
        (1, 8, 1, 8192, 8192, 128),
        (2, 64, 8, 4096, 4096, 128),
        (64, 12, 12, 197, 197, 64),
        (16, 16, 16, 257, 257, 80),
    ],
    *[
        (4, 25, 25, 1024, 1024, 64),
        (1, 16, 2, 1000, 1000, 128),
        (2, 8, 8, 4096, 4096, 96),
        (1, 4, 4, 16384, 16384, 128),
    ],
    *[(8, 8, 8, 333, 777, 64), (16, 8, 8, 64, 256, 64)],
)
DECODING = (
    *[
        (16, 32, 8, 1, 1024, 128),
        (1, 32, 8, 1, 8192, 128),
        (64, 32, 8, 1, 2048, 128),
        (8, 12, 12, 1, 512, 64),
    ],
    *[(4, 64, 8, 1, 4096, 128), (128, 8, 1, 1, 1024, 128)],
)

# n, c_in, h, c_out, kernel, stride, groups
RESNET = (
    *[(3, 224, 64, 7, 2, 1), (64, 56, 64, 1, 1, 1), (64, 56, 64, 3, 1, 1), (64, 56, 256, 1, 1, 1)],
    *[(256, 56, 128, 1, 1, 1), (128, 56, 128, 3, 2, 1), (128, 28, 512, 1, 1, 1), (256, 56, 512, 1, 2, 1)],
    *[(512, 28, 256, 1, 1, 1), (256, 28, 256, 3, 2, 1), (256, 14, 1024, 1, 1, 1), (256, 14, 256, 3, 1, 1)],
    *[(1024, 14, 512, 1, 1, 1), (512, 14, 512, 3, 2, 1), (512, 7, 2048, 1, 1, 1), (512, 7, 512, 3, 1, 1)],
)
OTHER_CONVOLUTIONS = (
    *[(3, 224, 768, 16, 16, 1), (32, 112, 32, 3, 1, 32), (96, 112, 96, 3, 2, 96), (144, 56, 144, 3, 1, 144)],
    *[(384, 14, 384, 3, 1, 384), (96, 56, 24, 1, 1, 1), (320, 7, 1280, 1, 1, 1), (64, 128, 64, 3, 1, 1)],
    *[(128, 64, 128, 3, 1, 1), (320, 64, 320, 3, 1, 1), (3, 64, 64, 4, 2, 1), (64, 32, 128, 4, 2, 1)],
)


def layer_rows() -> list[Row]:
    """All of them."""
    return [*_attention(), *_convolutions(), *_pools(), *_recurrent()]


def _attention() -> Iterator[Row]:
    for sizes in ATTENTION:
        for causal in (False, True):
            for backward in (False, True):
                yield _sdpa(*sizes, causal=causal, dtype=BF16, backend="default", backward=backward)
    for sizes in ATTENTION[:11]:
        for backward in (False, True):
            yield _sdpa(*sizes, causal=True, dtype=BF16, backend="flash", backward=backward)
            if sizes[1] == sizes[2]:
                yield _sdpa(*sizes, causal=False, dtype=FP32, backend="default", backward=backward)
                yield _sdpa(*sizes, causal=False, dtype=BF16, backend="efficient", backward=backward)
    for sizes in DECODING:
        for backend in ("default", "flash", "cudnn"):
            yield _sdpa(*sizes, causal=False, dtype=BF16, backend=backend, backward=False)


def _sdpa(
    b: int,
    h: int,
    kv: int,
    queries: int,
    keys: int,
    d: int,
    *,
    causal: bool,
    dtype: torch.dtype,
    backend: str,
    backward: bool,
) -> Row:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        chosen = BACKENDS[backend]
        options = {"is_causal": causal, "enable_gqa": kv != h}
        if chosen is None:
            return functional.scaled_dot_product_attention(q, k, v, **options)
        with sdpa_kernel(chosen):
            return functional.scaled_dot_product_attention(q, k, v, **options)

    def make(pool: Pool) -> Call:
        # As models have them: [b, s, h, d] in memory, seen as [b, h, s, d].
        q = pool.take(b, queries, h, d, dtype=dtype).transpose(1, 2)
        k, v = (pool.take(b, keys, kv, d, dtype=dtype).transpose(1, 2) for _ in range(2))
        return backward_of(attend, [q, k, v], pool=pool) if backward else lambda: attend(q, k, v)

    key: dict[str, object] = {"op": "sdpa", "b": b, "h": h, "s": queries, "d": d, "causal": causal}
    key |= {"kv_heads": kv, "keys": keys, "dtype": NAMES[dtype], "backend": backend}
    key |= {"direction": "backward"} if backward else {}
    products = 5 if backward else 2
    flops = products * 2 * b * h * queries * keys * d // (2 if causal and queries == keys else 1)
    nbytes = 2 * b * d * (queries * h + keys * kv) * dtype.itemsize * (2 if backward else 1)
    return Row(key=key, make=make, nbytes=nbytes, flops=flops)


def _convolutions() -> Iterator[Row]:
    for shapes, n in ((RESNET, 32), (RESNET, 128), (OTHER_CONVOLUTIONS, 16)):
        for i, shape in enumerate(shapes):
            kinds = [(BF16, True)] if n == 128 else [(BF16, True), (FP32, False)]
            kinds += [(BF16, False)] if n < 128 and i % 2 == 0 else []
            for dtype, last in kinds:
                for which in ("forward", "dgrad", "wgrad"):
                    yield _convolution(n, *shape, dtype=dtype, last=last, which=which)


def _convolution(
    n: int,
    c: int,
    h: int,
    out: int,
    kernel: int,
    stride: int,
    groups: int,
    *,
    dtype: torch.dtype,
    last: bool,
    which: str,
) -> Row:
    padding = 0 if stride == kernel else (kernel - 1) // 2
    side = (h + 2 * padding - kernel) // stride + 1

    def image(pool: Pool, channels: int, side: int) -> Tensor:
        if last:
            return pool.take(n, side, side, channels, dtype=dtype).permute(0, 3, 1, 2)
        return pool.take(n, channels, side, side, dtype=dtype)

    def make(pool: Pool) -> Call:
        x = image(pool, c, h)
        w = pool.take(out, c // groups, kernel, kernel, dtype=dtype)
        w = w.contiguous(memory_format=torch.channels_last) if last else w
        if which == "forward":
            return lambda: functional.conv2d(x, w, None, stride, padding, 1, groups)
        g = image(pool, out, side)
        mask = [which == "dgrad", which == "wgrad", False]
        two = [stride, stride], [padding, padding], [1, 1]
        backward = torch.ops.aten.convolution_backward
        return lambda: backward(g, x, w, None, *two, False, [0, 0], groups, mask)

    key: dict[str, object] = {"op": "conv2d", "n": n, "c": c, "h": h, "w": h, "out": out, "kernel": kernel}
    key |= {"stride": stride, "padding": padding, "groups": groups, "channels_last": last, "direction": which}
    flops = 2 * n * side * side * out * (c // groups) * kernel * kernel
    nbytes = n * (c * h * h + out * side * side) * dtype.itemsize
    return Row(key=key | {"dtype": NAMES[dtype]}, make=make, nbytes=nbytes, flops=flops)


def _pools() -> Iterator[Row]:
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "max_pool2d": lambda x: functional.max_pool2d(x, 3, 2, 1),
        "avg_pool2d": lambda x: functional.avg_pool2d(x, 2, 2),
        "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x, 1),
        "upsample2x": lambda x: functional.interpolate(x, scale_factor=2.0, mode="nearest"),
    }
    for n, c, h in ((32, 64, 112), (64, 256, 28), (64, 2048, 7), (8, 128, 64)):
        for last in (False, True):
            for name, function in functions.items():
                for backward in (False, True):

                    def make(
                        pool: Pool,
                        shape: tuple[int, int, int] = (n, c, h),
                        last: bool = last,
                        f: Callable[[Tensor], Tensor] = function,
                        backward: bool = backward,
                    ) -> Call:
                        n, c, h = shape
                        x = pool.take(n, h, h, c).permute(0, 3, 1, 2) if last else pool.take(n, c, h, h)
                        return backward_of(f, [x], pool=pool) if backward else lambda: f(x)

                    key: dict[str, object] = {
                        "op": name,
                        "n": n,
                        "c": c,
                        "h": h,
                        "w": h,
                        "channels_last": last,
                    }
                    key |= {"dtype": "bf16"} | ({"direction": "backward"} if backward else {})
                    yield Row(key=key, make=make, nbytes=4 * n * c * h * h)


def _recurrent() -> Iterator[Row]:
    shapes = ((64, 35, 650, 650, 2), (32, 64, 1500, 1500, 2), (16, 200, 800, 800, 1), (128, 50, 256, 256, 1))
    shapes = (
        *shapes,
        (1, 100, 1024, 1024, 1),
        (64, 100, 512, 512, 3),
        (20, 128, 1024, 2048, 1),
        (256, 20, 128, 128, 2),
    )
    for kind in ("lstm", "gru"):
        for batch, steps, inputs, hidden, layers in shapes:
            for dtype in (BF16, FP32):
                for both_ways in (False, True):
                    if both_ways and (layers == 2 or dtype is FP32):
                        continue
                    for training in (False, True):
                        sizes = (batch, steps, inputs, hidden, layers)
                        yield _rnn(kind, *sizes, dtype=dtype, both_ways=both_ways, training=training)


def _rnn(
    kind: str,
    batch: int,
    steps: int,
    inputs: int,
    hidden: int,
    layers: int,
    *,
    dtype: torch.dtype,
    both_ways: bool,
    training: bool,
) -> Row:
    gates = 4 if kind == "lstm" else 3
    ways = 2 if both_ways else 1

    def make(pool: Pool) -> Call:
        build = nn.LSTM if kind == "lstm" else nn.GRU
        options = {"device": pool.device, "dtype": dtype, "bidirectional": both_ways}
        module = build(inputs, hidden, layers, **options)
        x = pool.take(steps, batch, inputs, dtype=dtype)
        if not training:
            return lambda: _without_gradient(module, x)
        x = x.detach().requires_grad_()
        leaves = [x, *module.parameters()]
        g = pool.take(steps, batch, ways * hidden, dtype=dtype)
        return lambda: torch.autograd.grad(module(x)[0], leaves, g)

    first, later = inputs + hidden, (layers - 1) * (ways * hidden + hidden)
    weights = ways * gates * hidden * (first + later)
    key: dict[str, object] = {"op": kind, "b": batch, "t": steps, "i": inputs, "h": hidden, "layers": layers}
    key |= {"bidirectional": both_ways, "dtype": NAMES[dtype]}
    key |= {"direction": "training"} if training else {}
    flops = 2 * batch * steps * weights * (3 if training else 1)
    return Row(key=key, make=make, nbytes=weights * dtype.itemsize, flops=flops, profiled_runs=1)


def _without_gradient(module: nn.Module, x: Tensor) -> object:
    with torch.no_grad():
        return module(x)
