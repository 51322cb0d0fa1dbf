"""Layers of Llama-3 8B's dimensions: RMS norm, rotary positions, grouped-query attention, gated MLP."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, KV_HEADS, HEAD, FFN, VOCABULARY = 4096, 32, 8, 128, 14336, 128256
"""meta-llama/Meta-Llama-3-8B's configuration."""


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of [batch, heads, sequence, head]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Grouped-query attention, with a cache of keys and values where one is given."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.v = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, WIDTH, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, cache: tuple[Tensor, Tensor] | None, place: int
    ) -> Tensor:
        """[batch, sequence, width] to the same; with a cache, at position ``place`` of it."""
        b, s, _ = x.shape
        q = rotate(self.q(x).view(b, s, HEADS, HEAD).transpose(1, 2), cos, sin)
        k = rotate(self.k(x).view(b, s, KV_HEADS, HEAD).transpose(1, 2), cos, sin)
        v = self.v(x).view(b, s, KV_HEADS, HEAD).transpose(1, 2)
        if cache is not None:
            keys, values = cache
            keys[:, :, place : place + s] = k
            values[:, :, place : place + s] = v
            k, v = keys[:, :, : place + s], values[:, :, : place + s]
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(b, s, HEADS * HEAD))


class Layer(nn.Module):
    """Attention and gated MLP, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(WIDTH, eps=1e-5)
        self.attention = Attention()
        self.norm2 = nn.RMSNorm(WIDTH, eps=1e-5)
        self.gate = nn.Linear(WIDTH, FFN, bias=False)
        self.up = nn.Linear(WIDTH, FFN, bias=False)
        self.down = nn.Linear(FFN, WIDTH, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, cache: tuple[Tensor, Tensor] | None, place: int
    ) -> Tensor:
        """[batch, sequence, width] to the same."""
        x = x + self.attention(self.norm1(x), cos, sin, cache, place)
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Token ids to logits, with fewer layers than the published model."""

    def __init__(self, layers: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        angles = torch.outer(torch.arange(context), 500000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)).repeat(
            1, 2
        )
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(
        self, ids: Tensor, caches: list[tuple[Tensor, Tensor]] | None = None, place: int = 0
    ) -> Tensor:
        """[batch, sequence] to [batch, sequence, vocabulary]."""
        cos, sin = (t[place : place + ids.shape[1]] for t in (self.cos, self.sin))
        x = self.tokens(ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, cos, sin, None if caches is None else caches[i], place)
        return self.head(self.norm(x))


def train(layers: str = "4", batch: str = "1", sequence: str = "2048") -> Callable[[], object]:
    """One training step in bf16 with AdamW."""
    model = Llama(int(layers), int(sequence)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids, targets = torch.randint(VOCABULARY, (2, int(batch), int(sequence)))

    def step() -> object:
        loss = functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def train_sharded(layers: str = "4", batch: str = "1", sequence: str = "2048") -> Callable[[], object]:
    """The same step with each layer's weights sharded over all GPUs of the job (FSDP2)."""
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 (imports much)

    model = Llama(int(layers), int(sequence)).to(torch.bfloat16)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids, targets = torch.randint(VOCABULARY, (2, int(batch), int(sequence)))

    def step() -> object:
        loss = functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def decode(layers: str = "8", batch: str = "16", context: str = "1024") -> Callable[[], object]:
    """One token for every sequence of the batch, with a cache of keys and values of ``context`` tokens."""
    n, place = int(batch), int(context)
    model = Llama(int(layers), place + 1).to(torch.bfloat16).eval()
    shape = (2, n, KV_HEADS, place + 1, HEAD)
    caches = [tuple(torch.randn(shape, dtype=torch.bfloat16)) for _ in range(int(layers))]
    ids = torch.randint(VOCABULARY, (n, 1))

    @torch.inference_mode()
    def step() -> object:
        return model(ids, caches, place).argmax(-1)

    return step


def prefill(layers: str = "8", batch: str = "1", sequence: str = "4096") -> Callable[[], object]:
    """Logits of whole prompts in bf16."""
    model = Llama(int(layers), int(sequence)).to(torch.bfloat16).eval()
    ids = torch.randint(VOCABULARY, (int(batch), int(sequence)))

    @torch.inference_mode()
    def step() -> object:
        return model(ids)

    return step
