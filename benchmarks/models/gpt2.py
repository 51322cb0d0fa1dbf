"""GPT-2 in the manner of nanoGPT: fused qkv, scaled-dot-product attention, weights tied, mixed precision."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

SIZES = {"small": (12, 12, 768), "medium": (24, 16, 1024), "large": (36, 20, 1280)}
"""Layers, heads, width (Radford et al. 2019)."""
VOCABULARY = 50304
"""50257 padded to a multiple of 64, as nanoGPT does."""


class Block(nn.Module):
    """Attention and MLP, each after a norm."""

    def __init__(self, heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, width] to the same."""
        b, s, c = x.shape
        q, k, v = (
            t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(c, dim=2)
        )
        dropout = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        y = self.out(y.transpose(1, 2).contiguous().view(b, s, c))
        x = x + functional.dropout(y, self.dropout, self.training)
        y = self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return x + functional.dropout(y, self.dropout, self.training)


class Gpt(nn.Module):
    """Token ids to logits."""

    def __init__(self, size: str, sequence: int, dropout: float) -> None:
        super().__init__()
        layers, heads, width = SIZES[size]
        self.dropout = dropout
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(heads, width, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, ids: Tensor) -> Tensor:
        """[batch, sequence] to [batch, sequence, vocabulary]."""
        places = torch.arange(ids.shape[1], device=ids.device)
        x = functional.dropout(self.tokens(ids) + self.positions(places), self.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def train(size: str = "small", batch: str = "8", sequence: str = "1024") -> Callable[[], object]:
    """One training step: bf16 autocast over fp32 weights, clipped gradients, fused AdamW."""
    model = Gpt(size, int(sequence), dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    ids, targets = torch.randint(50257, (2, int(batch), int(sequence)))

    def step() -> object:
        with torch.autocast(ids.device.type, torch.bfloat16):
            logits = model(ids)
            loss = functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def train_bf16(size: str = "medium", batch: str = "4", sequence: str = "1024") -> Callable[[], object]:
    """One training step all in bf16, no dropout, AdamW as PyTorch chooses it (foreach on a GPU)."""
    model = Gpt(size, int(sequence), dropout=0.0).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
    ids, targets = torch.randint(50257, (2, int(batch), int(sequence)))

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(ids).view(-1, VOCABULARY), targets.view(-1))
        loss.backward()
        optimizer.step()
        return loss

    return step


def infer(size: str = "small", batch: str = "8", sequence: str = "1024") -> Callable[[], object]:
    """Logits of whole sequences in bf16."""
    model = Gpt(size, int(sequence), dropout=0.1).to(torch.bfloat16).eval()
    ids = torch.randint(50257, (int(batch), int(sequence)))

    @torch.inference_mode()
    def step() -> object:
        return model(ids)

    return step
