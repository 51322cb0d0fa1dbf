"""Matrix products to time: the linear layers of published models, squares, odd sizes, batches, all layouts.

A row is out[m, n] = A[m, k] x B, in one of the three layouts that training uses: ``nt`` (forward, B stored
as [n, k]), ``nn`` (gradient of the input, B stored as [k, n]), ``tn`` (gradient of the weight, A stored as
[k, m]).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from graphs import Call
from pool import Pool
from rows import Row

DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp8_e4m3": torch.float8_e4m3fn,
}

LAYERS: dict[str, list[tuple[int, int]]] = {
    "llama3-8b": [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)],
    "llama3-70b-tp8": [(1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584), (16032, 8192)],
    "llama3-405b-tp8": [(2304, 16384), (16384, 2048), (13312, 16384), (16384, 6656), (16032, 16384)],
    "gpt2": [(2304, 768), (768, 768), (3072, 768), (768, 3072), (50257, 768), (50304, 768)],
    "gpt2-medium": [(3072, 1024), (1024, 1024), (4096, 1024), (1024, 4096), (50257, 1024)],
    "gpt2-xl": [(4800, 1600), (1600, 1600), (6400, 1600), (1600, 6400)],
    "gpt3-13b": [(15360, 5120), (5120, 5120), (20480, 5120), (5120, 20480)],
    "gpt3-175b-tp8": [(4608, 12288), (12288, 1536), (6144, 12288), (12288, 6144)],
    "bert": [(30522, 768), (30522, 1024), (2, 768), (768, 768)],
    "mixtral-8x7b": [(28672, 4096), (4096, 14336), (8, 4096)],
    "deepseek-v3": [
        *[(1536, 7168), (24576, 1536), (576, 7168), (32768, 512), (7168, 16384)],
        *[(4096, 7168), (7168, 2048), (36864, 7168), (7168, 18432), (256, 7168)],
    ],
    "qwen2.5-7b": [(4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944), (152064, 3584)],
    "t5": [(512, 512), (2048, 512), (512, 2048), (32128, 512), (4096, 1024), (1024, 2816)],
    "dlrm": [(512, 13), (256, 512), (64, 256), (1024, 479), (1024, 1024), (512, 1024), (1, 256)],
    "lstm": [(2600, 650), (6000, 1500), (10000, 650), (4096, 1024)],
}
"""(n, k) of linear layers, from published configurations; tp8: one of eight tensor-parallel ranks."""

VIT = {"vit-b": (197, 768), "vit-l": (197, 1024), "vit-h": (257, 1280)}
"""Tokens an image and width."""

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
ODD_TOKENS = (3, 17, 49, 100, 137, 197, 333, 777, 1000, 1500, 3000, 5000, 12345)
FLOPS_AT_MOST = {"bf16": 9e12, "fp16": 6e12, "fp8_e4m3": 9e12, "tf32": 3e12, "fp32": 6e11}


def gemm_rows() -> list[Row]:
    """All of them."""
    draw = random.Random(11)
    rows = [
        *_published(draw),
        *_shapes(),
        *_unaligned(draw),
        *_batches(),
        *_biased(draw),
        *_other_types(draw),
    ]
    return [row for row in rows if row.flops <= FLOPS_AT_MOST[str(row.key["dtype"])]]


def gemm(
    m: int,
    n: int,
    k: int,
    *,
    family: str,
    dtype: str = "bf16",
    layout: str = "nt",
    batch: int = 1,
    bias: bool = False,
) -> Row:
    """One product."""
    key: dict[str, object] = {"family": family, "m": m, "n": n, "k": k, "dtype": dtype, "layout": layout}
    if batch > 1:
        key["batch"] = batch
    if bias:
        key["bias"] = True
    size = DTYPES[dtype].itemsize
    written = 2 if dtype == "fp8_e4m3" else size
    return Row(
        key=key,
        make=_maker(m, n, k, dtype=dtype, layout=layout, batch=batch, bias=bias),
        nbytes=batch * ((m * k + n * k) * size + m * n * written),
        flops=2 * m * n * k * batch,
    )


def _maker(
    m: int, n: int, k: int, *, dtype: str, layout: str, batch: int, bias: bool
) -> Callable[[Pool], Call]:
    kind = DTYPES[dtype]
    lead = (batch,) if batch > 1 else ()

    def make(pool: Pool) -> Call:
        a = pool.take(*lead, k, m, dtype=kind).mT if layout == "tn" else pool.take(*lead, m, k, dtype=kind)
        b = pool.take(*lead, n, k, dtype=kind).mT if layout == "nt" else pool.take(*lead, k, n, dtype=kind)
        if dtype == "fp8_e4m3":
            one = torch.ones((), device=pool.device)
            return lambda: torch._scaled_mm(
                a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        out = pool.out(*lead, m, n, dtype=kind)
        if batch > 1:
            return _with_tf32(lambda: torch.bmm(a, b, out=out), allowed=dtype == "tf32")
        if bias:
            added = pool.take(n, dtype=kind)
            return _with_tf32(lambda: torch.addmm(added, a, b, out=out), allowed=dtype == "tf32")
        return _with_tf32(lambda: torch.mm(a, b, out=out), allowed=dtype == "tf32")

    return make


def _with_tf32(call: Call, *, allowed: bool) -> Call:
    def run() -> object:
        torch.backends.cuda.matmul.allow_tf32 = allowed
        return call()

    return run


def _published(draw: random.Random) -> Iterator[Row]:
    for family, layers in LAYERS.items():
        for n, k in layers:
            for m in sorted(draw.sample(TOKENS, 6) + draw.sample(ODD_TOKENS, 1)):
                yield gemm(m, n, k, family=family)
            m = draw.choice((512, 1024, 2048, 4096, 8192))
            yield gemm(m, k, n, family=family, layout="nn")
            yield gemm(n, k, m, family=family, layout="tn")
    for family, (tokens, width) in VIT.items():
        for n, k in ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width)):
            for images in draw.sample((1, 2, 8, 16, 32, 64), 3):
                yield gemm(images * tokens, n, k, family=family)
            images = draw.choice((8, 32, 64))
            yield gemm(images * tokens, k, n, family=family, layout="nn")
            yield gemm(n, k, images * tokens, family=family, layout="tn")


def _shapes() -> Iterator[Row]:
    for side in (
        64,
        128,
        192,
        256,
        384,
        512,
        768,
        1024,
        1280,
        1536,
        2048,
        2560,
        3072,
        4096,
        6144,
        8192,
        12288,
    ):
        for layout in ("nt", "nn", "tn"):
            yield gemm(side, side, side, family="square", layout=layout)
    for small in (1, 8, 24, 64, 200):
        for large in (2048, 8192, 32768):
            yield gemm(small, large, 4096, family="skinny")
            yield gemm(large, small, 4096, family="skinny")
    for k in (16, 32, 64, 128, 256, 20000, 65536, 262144):
        for side in (128, 512, 2048):
            yield gemm(side, side, k, family="inner", layout="tn" if k > 10000 else "nt")


def _unaligned(draw: random.Random) -> Iterator[Row]:
    bases = [
        (256, 1024, 1024),
        (1024, 4096, 1024),
        (2048, 2048, 2048),
        (4096, 5120, 1280),
        (8192, 4096, 4096),
    ]
    for base in bases:
        for off in (1, 2, 4, 8, -1, -4):
            for which in ((0,), (1,), (2,), (0, 1, 2)):
                m, n, k = (size + off * (i in which) for i, size in enumerate(base))
                yield gemm(m, n, k, family="unaligned", layout=draw.choice(("nt", "nn", "tn")))
    for _ in range(40):
        m, n, k = (draw.randint(16, 5000) for _ in range(3))
        yield gemm(m, n, k, family="random", layout=draw.choice(("nt", "nn", "tn")))


def _batches() -> Iterator[Row]:
    for batch, heads in ((1, 12), (8, 12), (4, 16), (1, 32), (2, 64)):
        for s, d in ((128, 64), (512, 64), (1024, 64), (1024, 128), (2048, 128)):
            yield gemm(s, s, d, family="attention", batch=batch * heads)
            yield gemm(s, d, s, family="attention", batch=batch * heads, layout="nn")
    for batch, m, n, k in (
        (8, 512, 14336, 4096),
        (8, 128, 4096, 14336),
        (64, 64, 1024, 1024),
        (2048, 27, 27, 64),
    ):
        yield gemm(m, n, k, family="experts", batch=batch)
        yield gemm(m, n, k, family="experts", batch=batch, layout="tn")


def _biased(draw: random.Random) -> Iterator[Row]:
    for family in ("gpt2", "gpt2-medium", "gpt2-xl", "gpt3-13b", "bert", "qwen2.5-7b"):
        for n, k in LAYERS[family][:4]:
            for m in draw.sample(TOKENS[4:14], 3):
                yield gemm(m, n, k, family=family, bias=True)


def _other_types(draw: random.Random) -> Iterator[Row]:
    for dtype, count in (("fp16", 100), ("fp8_e4m3", 110), ("fp32", 70), ("tf32", 70)):
        for _ in range(count):
            family = draw.choice(
                sorted(LAYERS.keys() - ({"dlrm", "lstm", "bert"} if "fp8" in dtype else set()))
            )
            n, k = draw.choice(LAYERS[family])
            if dtype == "fp8_e4m3":
                n, k = -(-n // 16) * 16, -(-k // 16) * 16  # torch._scaled_mm takes multiples of 16 only
                yield gemm(draw.choice(TOKENS[4:]), n, k, family=family, dtype=dtype)
                continue
            m = draw.choice(TOKENS[:14] if draw.random() < 0.8 else ODD_TOKENS)
            yield _in_layout(draw.choice(("nt", "nt", "nn", "tn")), m, n, k, family=family, dtype=dtype)


def _in_layout(layout: str, m: int, n: int, k: int, *, family: str, dtype: str) -> Row:
    sizes = {"nt": (m, n, k), "nn": (m, k, n), "tn": (n, k, m)}[layout]
    return gemm(*sizes, family=family, dtype=dtype, layout=layout)
