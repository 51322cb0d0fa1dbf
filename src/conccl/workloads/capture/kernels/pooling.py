"""Pooling and resampling."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch

from conccl.core.kinds import Access, Pass
from conccl.core.ops import Pooling
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.kernels.copies import filled
from conccl.workloads.capture.tensors import dtype_of
from conccl.workloads.captured import Kernel


def _pooling(
    big: torch.Tensor, small: torch.Tensor, window: int, direction: Pass, *, spatial: int
) -> Pooling:
    channels = int(big.shape[-spatial - 1]) if big.dim() > spatial else 1
    batch = big.numel() // max(1, channels * prod(big.shape[-spatial:]))
    return Pooling(
        batch=max(1, batch),
        channels=max(1, channels),
        in_size=tuple(int(size) for size in big.shape[-spatial:]),
        out_size=tuple(int(size) for size in small.shape[-spatial:]),
        window=max(1, window),
        direction=direction,
        dtype=dtype_of(big),
        channels_last=big.dim() > spatial + 1 and big.stride(-spatial - 1) == 1,
    )


def _window(call: AtenCall, big: torch.Tensor, small: torch.Tensor, spatial: int) -> int:
    try:
        kernel = call.argument("kernel_size")
    except KeyError:  # adaptive: as large as the ratio of sizes
        return prod(
            -(-int(b) // int(s)) for b, s in zip(big.shape[-spatial:], small.shape[-spatial:], strict=True)
        )
    return int(kernel[0]) ** spatial if len(kernel) == 1 else prod(kernel)


def _forward(spatial: int) -> Rule:
    def rule(call: AtenCall) -> Iterator[Kernel]:
        big, small = call.inputs[0], call.outputs[0]
        window = _window(call, big, small, spatial)
        yield call.kernel(_pooling(big, small, window, Pass.FORWARD, spatial=spatial))

    return rule


def _backward(spatial: int) -> Rule:
    def rule(call: AtenCall) -> Iterator[Kernel]:
        small, big = call.inputs[0], call.inputs[1]
        window = _window(call, big, small, spatial)
        if "max" in call.name or "adaptive" in call.name:
            yield filled(big)
        yield call.kernel(_pooling(big, small, window, Pass.BACKWARD, spatial=spatial))

    return rule


def _resample(call: AtenCall) -> Iterator[Kernel]:
    """One kernel; gradients that are added up go into cleared memory."""
    if call.outputs[0].numel():
        if any(part in call.name for part in _ADDING) and call.name.endswith("_backward"):
            yield filled(call.outputs[0])
        yield call.elementwise()


_ADDING = ("linear", "bicubic", "grid_sampler", "reflection_pad", "replication_pad")


def _unfold(call: AtenCall) -> Iterator[Kernel]:
    """im2col goes over the images of a batch one by one (aten/src/ATen/native/cuda/Im2Col.cu)."""
    if call.outputs[0].numel():
        kernel = call.elementwise()
        batch = int(call.inputs[0].shape[0]) if call.inputs[0].dim() == 4 else 1
        yield call.kernel(kernel.op, launches=max(1, batch))


def _unpooled(call: AtenCall) -> Iterator[Kernel]:
    """Values put at their places in cleared memory."""
    out = call.outputs[0]
    if out.numel():
        yield filled(out)
        yield call.elementwise(reads=call.inputs, writes=call.inputs[:1], access=Access.STRIDED)


_RESAMPLERS = (
    *(f"{mode}{n}d" for mode in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)),
    "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa",
    "grid_sampler_2d", "grid_sampler_3d",
    *(f"{mode}_pad{n}d" for mode in ("reflection", "replication") for n in (1, 2, 3)),
    "pixel_shuffle", "pixel_unshuffle", "col2im",
)  # fmt: skip


RULES: dict[str, Rule] = {
    **{f"max_pool{n}d_with_indices": _forward(n) for n in (2, 3)},
    **{f"max_pool{n}d_with_indices_backward": _backward(n) for n in (2, 3)},
    **{f"avg_pool{n}d": _forward(n) for n in (2, 3)},
    **{f"avg_pool{n}d_backward": _backward(n) for n in (2, 3)},
    **{f"_adaptive_avg_pool{n}d": _forward(n) for n in (2, 3)},
    **{f"_adaptive_avg_pool{n}d_backward": _backward(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d": _forward(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d_backward": _backward(n) for n in (2, 3)},
    **dict.fromkeys([f"{mode}{way}" for mode in _RESAMPLERS for way in ("", "_backward")], _resample),
    "im2col": _unfold,
    **{f"fractional_max_pool{n}d": _forward(n) for n in (2, 3)},
    **{f"fractional_max_pool{n}d_backward": _backward(n) for n in (2, 3)},
    **dict.fromkeys(("max_unpool2d", "max_unpool3d"), _unpooled),
}
