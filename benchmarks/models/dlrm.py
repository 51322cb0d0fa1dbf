"""A recommender in the manner of DLRM (arXiv:1906.00091): embedding bags, MLPs, and their dot products."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

TABLES, ROWS, WIDTH, DENSE, BAG = 26, 20000, 64, 13, 4


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU behind each."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers)


class Model(nn.Module):
    """Dense and categorical features to a score."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = mlp(DENSE, 512, 256, WIDTH)
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum") for _ in range(TABLES))
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(mlp(WIDTH + pairs, 1024, 1024, 512, 256), nn.Linear(256, 1))
        self.register_buffer("pairs", torch.tril_indices(TABLES + 1, TABLES + 1, offset=-1))

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        """[batch, dense] and [tables, batch, bag] to [batch]."""
        x = self.bottom(dense)
        bags = [table(ids) for table, ids in zip(self.tables, categories, strict=True)]
        features = torch.stack([x, *bags], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, products], dim=1)).squeeze(1)


def train(batch: str = "2048") -> Callable[[], object]:
    """One training step in fp32 with SGD."""
    n = int(batch)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dense, clicks = torch.randn(n, DENSE), torch.randint(2, (n,)).float()
    categories = torch.randint(ROWS, (TABLES, n, BAG))

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.binary_cross_entropy_with_logits(model(dense, categories), clicks)
        loss.backward()
        optimizer.step()
        return loss

    return step
