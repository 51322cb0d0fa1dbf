"""Rows of layers that one library call carries out: GEMM, attention, convolution, pooling, recurrence."""

from __future__ import annotations

import enum

from conccl.core.ops import (
    Attention,
    AttentionBackend,
    Collective,
    CollectiveKind,
    Convolution,
    ConvolutionPass,
    Gemm,
    Layout,
    Op,
    Pass,
    Pooling,
    Recurrent,
    RecurrentKind,
)
from conccl.costs.rows.row import Maker, Row


def _gemm(row: Row) -> tuple[Op, ...]:
    return (
        Gemm(
            m=row.count("m"),
            n=row.count("n"),
            k=row.count("k"),
            batch=row.count("batch", 1),
            dtype=row.dtype,
            layout=row.choice("layout", Layout, Layout.NT),
        ),
    )


def _attention(row: Row) -> tuple[Op, ...]:
    heads, queries = row.count("h"), row.count("s")
    return (
        Attention(
            batch=row.count("b"),
            heads=heads,
            kv_heads=row.count("kv_heads", heads),
            queries=queries,
            keys=row.count("keys", queries),
            head_dim=row.count("d"),
            causal=row.flag("causal"),
            direction=row.direction,
            dtype=row.dtype,
            backend=row.choice("backend", AttentionBackend, AttentionBackend.DEFAULT),
        ),
    )


class _Gradient(enum.StrEnum):
    FORWARD = "forward"
    DGRAD = "dgrad"
    WGRAD = "wgrad"


_GRADIENTS = {
    _Gradient.FORWARD: ConvolutionPass.FORWARD,
    _Gradient.DGRAD: ConvolutionPass.INPUT_GRADIENT,
    _Gradient.WGRAD: ConvolutionPass.WEIGHT_GRADIENT,
}


def _convolution(row: Row) -> tuple[Op, ...]:
    kernel, stride, padding = row.count("kernel"), row.count("stride", 1), row.count("padding", 0, least=0)
    return (
        Convolution(
            batch=row.count("n"),
            in_channels=row.count("c"),
            out_channels=row.count("out"),
            in_size=(row.count("h"), row.count("w")),
            kernel_size=(kernel, kernel),
            stride=(stride, stride),
            padding=(padding, padding),
            dilation=(1, 1),
            groups=row.count("groups", 1),
            direction=_GRADIENTS[row.choice("direction", _Gradient, _Gradient.FORWARD)],
            dtype=row.dtype,
            channels_last=row.flag("channels_last"),
        ),
    )


_POOLS = {"max_pool2d": (3, 2, 1), "avg_pool2d": (2, 2, 0)}


_POOL_NAMES = {"max_pool2d": "max_pool", "upsample2x": "upsample"}


def _pooling(row: Row) -> tuple[Op, ...]:
    height, width = row.count("h"), row.count("w")
    out: tuple[int, ...]
    if row.name == "adaptive_avg_pool2d":
        out, window = (1, 1), height * width
    elif row.name == "upsample2x":
        out, window = (2 * height, 2 * width), 1
    else:
        side, stride, padding = _POOLS[row.name]
        out = tuple((size + 2 * padding - side) // stride + 1 for size in (height, width))
        window = side * side
    return (
        Pooling(
            batch=row.count("n"),
            channels=row.count("c"),
            in_size=(height, width),
            out_size=out,
            window=window,
            direction=row.direction,
            dtype=row.dtype,
            channels_last=row.flag("channels_last"),
            name=_POOL_NAMES.get(row.name, "avg_pool"),
        ),
    )


class _Training(enum.StrEnum):
    FORWARD = "forward"
    TRAINING = "training"


def _recurrent(row: Row) -> tuple[Op, ...]:
    directions: tuple[Pass, ...] = (Pass.FORWARD,)
    if row.choice("direction", _Training, _Training.FORWARD) is _Training.TRAINING:
        directions = (Pass.FORWARD, Pass.BACKWARD)
    return tuple(
        Recurrent(
            kind=RecurrentKind(row.name),
            batch=row.count("b"),
            steps=row.count("t"),
            input_size=row.count("i"),
            hidden_size=row.count("h"),
            layers=row.count("layers", 1),
            ways=2 if row.flag("bidirectional") else 1,
            direction=direction,
            dtype=row.dtype,
        )
        for direction in directions
    )


def _collective(row: Row) -> tuple[Op, ...]:
    kind = CollectiveKind(row.name)
    nbytes = 0 if kind is CollectiveKind.BARRIER else row.count("nbytes")
    return (Collective(kind=kind, nbytes=nbytes, ranks=row.count("ranks"), dtype=row.dtype),)


LAYERS: dict[str, Maker] = {
    "gemm": _gemm,
    "sdpa": _attention,
    "conv2d": _convolution,
    **dict.fromkeys((*_POOLS, "adaptive_avg_pool2d", "upsample2x"), _pooling),
    **dict.fromkeys(("lstm", "gru"), _recurrent),
    **dict.fromkeys(CollectiveKind, _collective),
}
