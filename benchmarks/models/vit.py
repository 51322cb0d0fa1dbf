"""ViT-B/16 (arXiv:2010.11929) with PyTorch's own attention module, as torchvision has it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

LAYERS, HEADS, WIDTH, PATCH = 12, 12, 768, 16


class Layer(nn.Module):
    """Attention and MLP, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """[n, tokens, width] to the same."""
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    """Images [n, 3, 224, 224] to 1000 scores."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(1, 1 + (224 // PATCH) ** 2, WIDTH))
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Scores from the first token."""
        x = self.patches(images).flatten(2).permute(0, 2, 1)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


def train(batch: str = "64") -> Callable[[], object]:
    """One training step: bf16 autocast over fp32 weights, AdamW."""
    model = Vit()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.3)
    images, labels = torch.randn(int(batch), 3, 224, 224), torch.randint(1000, (int(batch),))

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(images.device.type, torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        return loss

    return step
