"""What optimizers launch over many tensors at once, and plain copies and fills by the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from graphs import Call
from pool import Pool
from rows import Row
from torch import Tensor

BF16, FP32 = torch.bfloat16, torch.float32
NAMES = {BF16: "bf16", FP32: "fp32"}

Shapes = list[tuple[int, ...]]


def _gpt(layers: int, width: int, vocabulary: int) -> Shapes:
    block: Shapes = [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)]
    block += [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return [(vocabulary, width), (1024, width), *block * layers, (width,), (width,)]


PARAMETERS: dict[str, Shapes] = {
    "gpt2": _gpt(12, 768, 50257),
    "gpt2-medium": _gpt(24, 1024, 50257),
    "llama-layer": [(4096,), (6144, 4096), (4096, 4096), (4096,), (28672, 4096), (4096, 14336)],
    "resnet-like": [(c, c, 3, 3) for c in (64, 128, 256, 512) for _ in range(6)]
    + [(c,) for c in (64, 256, 1024) * 36],
    "many-small": [(256,)] * 400,
    "few-odd": [(1001, 777), (333,), (50257, 129), (7,)],
    "mlp": [(2048, 2048), (2048,)] * 8,
}
"""Parameter sets as optimizers see them."""


def update_rows() -> list[Row]:
    """All of them."""
    return [*_optimizers(), *_copies()]


def _optimizers() -> Iterator[Row]:
    for name, shapes in PARAMETERS.items():
        numel = sum(torch.Size(s).numel() for s in shapes)
        for dtype in (FP32, BF16):
            for op, (tensors, make) in _updates(shapes, dtype).items():
                key = {
                    "op": op,
                    "parameters": name,
                    "tensors": len(shapes),
                    "numel": numel,
                    "dtype": NAMES[dtype],
                }
                yield Row(key=key, make=make, nbytes=tensors * numel * dtype.itemsize)


def _updates(shapes: Shapes, dtype: torch.dtype) -> dict[str, tuple[int, Callable[[Pool], Call]]]:
    """Op to (tensors of the parameters' size that it reads or writes, maker)."""

    def lists(pool: Pool, count: int) -> list[list[Tensor]]:
        return [[pool.own(*s, dtype=dtype) for s in shapes] for _ in range(count)]

    def mul(pool: Pool) -> Call:
        (p,) = lists(pool, 1)
        return lambda: torch._foreach_mul_(p, 0.99)

    def lerp(pool: Pool) -> Call:
        m, g = lists(pool, 2)
        return lambda: torch._foreach_lerp_(m, g, 0.1)

    def addcmul(pool: Pool) -> Call:
        v, g = lists(pool, 2)
        return lambda: torch._foreach_addcmul_(v, g, g, 0.001)

    def sqrt(pool: Pool) -> Call:
        (v,) = lists(pool, 1)
        return lambda: torch._foreach_sqrt(v)

    def addcdiv(pool: Pool) -> Call:
        p, m, v = lists(pool, 3)
        return lambda: torch._foreach_addcdiv_(p, m, v, -1e-3)

    def add(pool: Pool) -> Call:
        p, g = lists(pool, 2)
        return lambda: torch._foreach_add_(p, g, alpha=-0.1)

    def norm(pool: Pool) -> Call:
        (g,) = lists(pool, 1)
        return lambda: torch._foreach_norm(g)

    def adamw(pool: Pool) -> Call:
        p, g, m, v = lists(pool, 4)
        v = [t.abs() for t in v]
        steps = [torch.ones((), device=pool.device) for _ in shapes]
        options = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
        options |= {"amsgrad": False, "maximize": False}
        return lambda: torch._fused_adamw_(p, g, m, v, [], steps, **options)

    return {
        "foreach_mul": (2, mul),
        "foreach_lerp": (3, lerp),
        "foreach_addcmul": (3, addcmul),
        "foreach_sqrt": (2, sqrt),
        "foreach_addcdiv": (4, addcdiv),
        "foreach_add": (3, add),
        "foreach_norm": (1, norm),
        "fused_adamw": (7, adamw),
    }


def _copies() -> Iterator[Row]:
    for nbytes in (8, 1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 5000003):
        for op in ("copy_host_to_device", "copy_device_to_host", "copy_device_to_device", "memset"):
            # floor: what the link carries in that time, were it memory
            moved = nbytes * (80 if "host" in op else 2)
            yield Row(
                key={"op": op, "nbytes": nbytes, "dtype": "uint8"}, make=_copy(op, nbytes), nbytes=moved
            )


def _copy(op: str, nbytes: int) -> Callable[[Pool], Call]:
    def make(pool: Pool) -> Call:
        here = pool.out(nbytes, dtype=torch.uint8)
        if op == "memset":
            return here.zero_
        if op == "copy_device_to_device":
            other = pool.out(nbytes, dtype=torch.uint8)
            return lambda: here.copy_(other)
        there = pool.pinned(nbytes)
        if op == "copy_host_to_device":
            return lambda: here.copy_(there, non_blocking=True)
        return lambda: there.copy_(here, non_blocking=True)

    return make
