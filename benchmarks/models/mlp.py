"""A plain multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


def train(
    implementation: str = "foreach", batch: str = "4096", width: str = "2048", layers: str = "8"
) -> Callable[[], object]:
    """One training step in bf16 with AdamW: ``foreach``, ``fused`` or ``forloop``."""
    n, w = int(batch), int(width)
    stack = [m for _ in range(int(layers)) for m in (nn.Linear(w, w), nn.GELU())]
    model = nn.Sequential(*stack, nn.Linear(w, 1000)).to(torch.bfloat16)
    kinds = {"foreach": implementation == "foreach", "fused": implementation == "fused"}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **kinds)
    x, labels = torch.randn(n, w, dtype=torch.bfloat16), torch.randint(1000, (n,))

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step
