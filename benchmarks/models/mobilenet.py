"""MobileNetV2 (arXiv:1801.04381)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks, stride of the first (the paper's table 2)."""


def convolution(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Convolution, norm, ReLU6."""
    padding = (kernel - 1) // 2
    return [
        nn.Conv2d(before, after, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU6(inplace=True),
    ]


class Inverted(nn.Module):
    """Widen, convolve each channel by itself, narrow; beside a shortcut where shapes allow."""

    def __init__(self, before: int, after: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        layers = convolution(before, wide, 1) if expansion != 1 else []
        layers += [*convolution(wide, wide, 3, stride, groups=wide), nn.Conv2d(wide, after, 1, bias=False)]
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(after))
        self.has_shortcut = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        """[n, before, h, w] to [n, after, h / stride, w / stride]."""
        return x + self.layers(x) if self.has_shortcut else self.layers(x)


def mobilenet_v2() -> nn.Sequential:
    """Images [n, 3, 224, 224] to 1000 scores."""
    layers, before = convolution(3, 32, 3, 2), 32
    for expansion, after, blocks, stride in STAGES:
        for i in range(blocks):
            layers.append(Inverted(before, after, stride if i == 0 else 1, expansion))
            before = after
    layers += [*convolution(before, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


def infer(batch: str = "64", dtype: str = "float16") -> Callable[[], object]:
    """Class scores, contiguous images."""
    kind = getattr(torch, dtype)
    model = mobilenet_v2().to(kind).eval()
    images = torch.randn(int(batch), 3, 224, 224, dtype=kind)

    @torch.inference_mode()
    def step() -> object:
        return model(images)

    return step
