"""A speech recogniser like Deep Speech 2 (arXiv:1512.02595): convolutions, then bidirectional GRUs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

BINS, HIDDEN, LAYERS, SYMBOLS = 161, 800, 5, 29


class Model(nn.Module):
    """Spectrograms to symbol log-probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5), bias=False),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5), bias=False),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
        )
        bins = (((BINS - 1) // 2 + 1) - 1) // 2 + 1
        self.gru = nn.GRU(32 * bins, HIDDEN, LAYERS, bidirectional=True)
        self.norm = nn.BatchNorm1d(2 * HIDDEN)
        self.head = nn.Linear(2 * HIDDEN, SYMBOLS)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 1, bins, frames] to [frames / 2, batch, symbols]."""
        x = self.convolutions(x).flatten(1, 2).permute(2, 0, 1).contiguous()
        y, _ = self.gru(x)
        steps, batch, width = y.shape
        return self.head(self.norm(y.view(-1, width))).view(steps, batch, SYMBOLS).log_softmax(-1)


def train(batch: str = "16", frames: str = "400") -> Callable[[], object]:
    """One training step in fp32 with connectionist temporal classification and SGD."""
    n, t, letters = int(batch), int(frames), 40
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
    spectra, text = torch.randn(n, 1, BINS, t), torch.randint(1, SYMBOLS, (n, letters))
    steps = ((t + 10 - 11) // 2) + 1

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.ctc_loss(model(spectra), text, [steps] * n, [letters] * n)
        loss.backward()
        optimizer.step()
        return loss

    return step
