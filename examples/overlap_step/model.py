"""A small transformer whose block weights live on the host: each training step gets the next step's set.

The step is ZeRO-Offload's delayed parameter update (arXiv:2101.06840). While step i computes with its
parameters, the block gradients of step i - 1 leave for the host and the block parameters of step i + 1
arrive; both are double-buffered, so neither transfer touches what the step uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of the transformer."""

    layers: int = 4
    width: int = 2560
    heads: int = 20
    vocabulary: int = 16384
    sequence: int = 512


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm1 = nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.norm2 = nn.LayerNorm(shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width, bias=False)
        self.down = nn.Linear(4 * shape.width, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, width] to the same."""
        batch, sequence, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, sequence, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, sequence, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Embedding, blocks, norm and head; returns the mean cross-entropy of the targets."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Parameter(0.02 * torch.randn(shape.sequence, shape.width))
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Token ids [batch, sequence] and their targets to a scalar loss."""
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class StreamedWeights:
    """The big matrices of each block as flat buffers: two sets on the GPU, one on the host."""

    def __init__(self, model: Transformer, *, pinned: bool) -> None:
        self._matrices = [[p for p in block.parameters() if p.dim() == 2] for block in model.blocks]
        flat = [torch.cat([p.detach().flatten() for p in matrices]) for matrices in self._matrices]
        self.parameters = (flat, [t.clone() for t in flat])
        self.gradients = tuple([torch.zeros_like(t) for t in flat] for _ in range(2))
        self.host_parameters = [t.to("cpu").pin_memory() if pinned else t.to("cpu").clone() for t in flat]
        self.host_gradients = [torch.empty_like(t, device="cpu", pin_memory=pinned) for t in flat]

    @property
    def nbytes(self) -> int:
        """Bytes that one step moves: parameters in and gradients out."""
        return 2 * sum(t.nbytes for t in self.host_parameters)

    def use(self, which: int, /) -> None:
        """Compute with parameter set ``which`` and accumulate into gradient set ``which``, zeroed first."""
        for i, matrices in enumerate(self._matrices):
            self.gradients[which][i].zero_()
            offset = 0
            for p in matrices:
                window = slice(offset, offset + p.numel())
                p.data = self.parameters[which][i][window].view_as(p)
                p.grad = self.gradients[which][i][window].view_as(p)
                offset += p.numel()

    def transfers(self, which: int, /) -> list[tuple[Tensor, Tensor]]:
        """(destination, source) of what moves while set ``which`` computes, block by block."""
        other = 1 - which
        pairs = []
        for i in range(len(self._matrices)):
            pairs.append((self.parameters[other][i], self.host_parameters[i]))
            pairs.append((self.host_gradients[i], self.gradients[other][i]))
        return pairs
