"""A word-level LSTM language model of the size that Zaremba et al. (arXiv:1409.2329) call large."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, WIDTH, LAYERS, DROPOUT = 10000, 1500, 2, 0.65


class Model(nn.Module):
    """Token ids to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.drop = nn.Dropout(DROPOUT)
        self.lstm = nn.LSTM(WIDTH, WIDTH, LAYERS, dropout=DROPOUT)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        """[steps, batch] to [steps, batch, vocabulary]."""
        y, _ = self.lstm(self.drop(self.tokens(ids)))
        return self.head(self.drop(y))


def train(batch: str = "32", steps: str = "35") -> Callable[[], object]:
    """One training step in fp32 with clipped gradients and SGD."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    ids, targets = torch.randint(VOCABULARY, (2, int(steps), int(batch)))

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        return loss

    return step
