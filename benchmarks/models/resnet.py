"""ResNet-50 (arXiv:1512.03385; stride in the 3 x 3 convolution, as torchvision has it)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Width, blocks, stride of the first."""


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions beside a shortcut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.conv1 = nn.Conv2d(before, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, after, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module | None = None
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: Tensor) -> Tensor:
        """[n, before, h, w] to [n, 4 width, h / stride, w / stride]."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return self.relu(y)


def resnet50() -> nn.Sequential:
    """Images [n, 3, 224, 224] to 1000 scores."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)]
    layers += [nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width, blocks, stride in STAGES:
        for i in range(blocks):
            layers.append(Bottleneck(before, width, stride if i == 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


def train(batch: str = "64", precision: str = "autocast") -> Callable[[], object]:
    """One training step with SGD: ``autocast`` (bf16, channels last) or ``fp32`` (contiguous)."""
    model = resnet50()
    images, labels = torch.randn(int(batch), 3, 224, 224), torch.randint(1000, (int(batch),))
    mixed = precision == "autocast"
    if mixed:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step() -> object:
        with torch.autocast(images.device.type, torch.bfloat16, enabled=mixed):
            loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    return step


def infer(batch: str = "32") -> Callable[[], object]:
    """Class scores in bf16, channels last."""
    model = resnet50().to(torch.bfloat16, memory_format=torch.channels_last).eval()
    images = torch.randn(int(batch), 3, 224, 224, dtype=torch.bfloat16)
    images = images.contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> object:
        return model(images)

    return step
