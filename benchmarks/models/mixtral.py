"""A small mixture of experts: top-2 routing with a fixed capacity an expert, so that shapes are static."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, FFN, EXPERTS, CHOSEN, VOCABULARY = 1024, 16, 3584, 8, 2, 32000
CAPACITY = 1.25
"""Room of an expert over its even share of the tokens (GShard, arXiv:2006.16668)."""


class Experts(nn.Module):
    """Router, and the gated MLP of every expert as one batched product."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.gate_up = nn.Parameter(0.02 * torch.randn(EXPERTS, WIDTH, 2 * FFN))
        self.down = nn.Parameter(0.02 * torch.randn(EXPERTS, FFN, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, width] to the same; tokens beyond an expert's capacity pass it by."""
        tokens = x.shape[0]
        capacity = int(CAPACITY * CHOSEN * tokens / EXPERTS)
        weights, experts = self.router(x).float().softmax(-1).topk(CHOSEN)
        flat = experts.flatten()
        one_hot = functional.one_hot(flat, EXPERTS)
        place = (one_hot.cumsum(0) * one_hot).sum(-1) - 1
        fits = place < capacity
        slot = torch.where(fits, flat * capacity + place, EXPERTS * capacity)
        source = x.repeat_interleave(CHOSEN, dim=0)
        room = x.new_zeros(EXPERTS * capacity + 1, WIDTH).index_copy(0, slot, source)
        gate, up = torch.bmm(room[:-1].view(EXPERTS, capacity, WIDTH), self.gate_up).chunk(2, dim=-1)
        y = torch.bmm(functional.silu(gate) * up, self.down).view(-1, WIDTH)
        back = functional.pad(y, (0, 0, 0, 1))[slot].view(tokens, CHOSEN, WIDTH)
        return (back * (weights * fits.view(tokens, CHOSEN)).to(x.dtype)[..., None]).sum(1)


class Layer(nn.Module):
    """Attention and experts, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm2 = nn.RMSNorm(WIDTH)
        self.experts = Experts()

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, width] to the same."""
        b, s, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, WIDTH))
        return x + self.experts(self.norm2(x).flatten(0, 1)).view(b, s, WIDTH)


def train(layers: str = "2", batch: str = "4", sequence: str = "1024") -> Callable[[], object]:
    """One training step in bf16 with fused AdamW."""
    model = nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH),
        *[Layer() for _ in range(int(layers))],
        nn.RMSNorm(WIDTH),
        nn.Linear(WIDTH, VOCABULARY, bias=False),
    ).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids, targets = torch.randint(VOCABULARY, (2, int(batch), int(sequence)))

    def step() -> object:
        loss = functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step
