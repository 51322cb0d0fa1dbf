"""Pooling and resampling."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch

from conccl.core.kinds import Pass
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
    if call.outputs[0].numel():
        yield call.elementwise()


RULES: dict[str, Rule] = {
    **{f"max_pool{n}d_with_indices": _forward(n) for n in (2, 3)},
    **{f"max_pool{n}d_with_indices_backward": _backward(n) for n in (2, 3)},
    **{f"avg_pool{n}d": _forward(n) for n in (2, 3)},
    **{f"avg_pool{n}d_backward": _backward(n) for n in (2, 3)},
    **{f"_adaptive_avg_pool{n}d": _forward(n) for n in (2, 3)},
    **{f"_adaptive_avg_pool{n}d_backward": _backward(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d": _forward(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d_backward": _backward(n) for n in (2, 3)},
    **dict.fromkeys(
        [
            f"{mode}{suffix}"
            for mode in (
                "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d",
                "upsample_bicubic2d", "upsample_linear1d", "upsample_trilinear3d",
                "_upsample_nearest_exact2d",
                "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "grid_sampler_2d", "reflection_pad2d",
                "replication_pad2d", "pixel_shuffle", "im2col", "col2im",
            )
            for suffix in ("", "_backward")
        ],
        _resample,
    ),
}  # fmt: skip
