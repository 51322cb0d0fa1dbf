"""A U-Net (arXiv:1505.04597) with group norm, as diffusion models use it, on small images."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (64, 128, 256, 512)


class Pair(nn.Module):
    """Two convolutions, each with norm and SiLU."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, padding=1)
        self.norm1 = nn.GroupNorm(32, after)
        self.second = nn.Conv2d(after, after, 3, padding=1)
        self.norm2 = nn.GroupNorm(32, after)

    def forward(self, x: Tensor) -> Tensor:
        """Same size, other channels."""
        x = functional.silu(self.norm1(self.first(x)))
        return functional.silu(self.norm2(self.second(x)))


class Unet(nn.Module):
    """Images to images."""

    def __init__(self) -> None:
        super().__init__()
        self.downs = nn.ModuleList(Pair(b, a) for b, a in zip((3, *WIDTHS), WIDTHS, strict=False))
        rising = WIDTHS[::-1]
        self.ups = nn.ModuleList(Pair(b + a, a) for b, a in itertools.pairwise(rising))
        self.out = nn.Conv2d(WIDTHS[0], 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 3, side, side] to the same."""
        skips = []
        for i, down in enumerate(self.downs):
            x = down(x if i == 0 else functional.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for up in self.ups:
            x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = up(torch.cat([x, skips.pop()], dim=1))
        return self.out(x)


def train(batch: str = "16", side: str = "128") -> Callable[[], object]:
    """One step of denoising: bf16 autocast over fp32 weights, AdamW."""
    model = Unet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    noisy, noise = torch.randn(2, int(batch), 3, int(side), int(side))

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(noisy.device.type, torch.bfloat16):
            loss = functional.mse_loss(model(noisy).float(), noise)
        loss.backward()
        optimizer.step()
        return loss

    return step
