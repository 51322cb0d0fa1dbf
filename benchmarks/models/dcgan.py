"""DCGAN (arXiv:1511.06434): a generator and a discriminator of images of 64 x 64."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

NOISE, WIDTH = 100, 64


def generator() -> nn.Sequential:
    """Noise [batch, 100, 1, 1] to images [batch, 3, 64, 64]."""
    layers: list[nn.Module] = []
    sizes = (NOISE, 8 * WIDTH, 4 * WIDTH, 2 * WIDTH, WIDTH)
    for i, (before, after) in enumerate(itertools.pairwise(sizes)):
        stride, padding = (1, 0) if i == 0 else (2, 1)
        layers += [nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False), nn.BatchNorm2d(after)]
        layers += [nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(WIDTH, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator() -> nn.Sequential:
    """Images [batch, 3, 64, 64] to scores [batch]."""
    layers: list[nn.Module] = [nn.Conv2d(3, WIDTH, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    for i in (1, 2, 4):
        layers += [nn.Conv2d(i * WIDTH, 2 * i * WIDTH, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * i * WIDTH)]
        layers += [nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*layers, nn.Conv2d(8 * WIDTH, 1, 4, 1, 0, bias=False), nn.Flatten(0))


def train(batch: str = "128") -> Callable[[], object]:
    """One step of both networks in fp32 with Adam."""
    n = int(batch)
    maker, judge = generator(), discriminator()
    makers, judges = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (maker, judge))
    images, noise = torch.randn(n, 3, 64, 64), torch.randn(n, NOISE, 1, 1)
    real, fake = torch.ones(n), torch.zeros(n)
    loss = functional.binary_cross_entropy_with_logits

    def step() -> object:
        judges.zero_grad(set_to_none=True)
        made = maker(noise)
        (loss(judge(images), real) + loss(judge(made.detach()), fake)).backward()
        judges.step()
        makers.zero_grad(set_to_none=True)
        fooled = loss(judge(made), real)
        fooled.backward()
        makers.step()
        return fooled

    return step
