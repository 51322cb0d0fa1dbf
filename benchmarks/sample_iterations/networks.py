"""Three sequence networks at training sizes: like DeepSpeech2, like GNMT, and a Transformer."""

from __future__ import annotations

import enum
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 (everybody's name for it)
from torch import nn

Step = Callable[[tuple[int, ...]], None]
"""One training iteration on a batch padded to this length."""


class Speech(nn.Module):
    """Two convolutions, then recurrent layers and a classifier (Amodei et al. 2015, arXiv:1512.02595)."""

    def __init__(self, *, hidden: int, layers: int, characters: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), stride=(2, 2), padding=(20, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), stride=(2, 1), padding=(10, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
        )
        self.recurrent = nn.GRU(32 * 41, hidden, num_layers=layers, bidirectional=True)
        self.classifier = nn.Linear(2 * hidden, characters)

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        """[batch, 1, 161, frames] -> log probabilities [steps, batch, characters]."""
        x = self.convolutions(spectrogram)
        batch, channels, bins, steps = x.shape
        x = x.reshape(batch, channels * bins, steps).permute(2, 0, 1).contiguous()
        x, _ = self.recurrent(x)
        return F.log_softmax(self.classifier(x).float(), dim=-1)


class Translation(nn.Module):
    """Encoder and decoder LSTMs with attention over the source (Wu et al. 2016, arXiv:1609.08144)."""

    def __init__(self, *, hidden: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.source = nn.Embedding(vocabulary, hidden)
        self.target = nn.Embedding(vocabulary, hidden)
        self.both_ways = nn.LSTM(hidden, hidden // 2, bidirectional=True)
        self.encoder = nn.LSTM(hidden, hidden, num_layers=layers - 1)
        self.first = nn.LSTM(hidden, hidden)
        self.decoder = nn.LSTM(2 * hidden, hidden, num_layers=layers - 1)
        self.query = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, vocabulary)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """[source steps, batch], [target steps, batch] -> logits [target steps, batch, vocabulary]."""
        memory, _ = self.both_ways(self.source(source))
        memory, _ = self.encoder(memory)
        state, _ = self.first(self.target(target))
        scores = torch.einsum("tbh,sbh->bts", self.query(state), memory)
        context = torch.einsum("bts,sbh->tbh", scores.softmax(dim=-1), memory)
        out, _ = self.decoder(torch.cat([state, context], dim=-1))
        return self.output(out)


class Block(nn.Module):
    """One pre-norm Transformer layer."""

    def __init__(self, *, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, hidden] -> the same shape."""
        batch, tokens, hidden = x.shape
        heads = self.qkv(self.norms[0](x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    """A decoder-only language model."""

    def __init__(self, *, hidden: int, layers: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.Sequential(*(Block(hidden=hidden, heads=heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)
        self.output = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[batch, tokens] -> logits [batch, tokens, vocabulary]."""
        return self.output(self.norm(self.blocks(self.embedding(tokens))))


class Size(enum.Enum):
    """Training sizes, or ones that show within seconds on a CPU whether everything runs."""

    FULL = "full"
    TINY = "tiny"


def speech(device: str, size: Size = Size.FULL) -> Step:
    """Batches of 32 utterances; length: frames of 10 ms."""
    is_full = size is Size.FULL
    batch = 32 if is_full else 2
    network = Speech(hidden=800 if is_full else 16, layers=3 if is_full else 1, characters=29)
    model = _placed(network, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step(length: tuple[int, ...]) -> None:
        x = torch.randn(batch, 1, 161, length[0], device=device, dtype=next(model.parameters()).dtype)
        probabilities = model(x)
        steps = probabilities.shape[0]
        target = torch.randint(1, 29, (batch, max(1, steps // 6)), device=device)
        loss = F.ctc_loss(probabilities, target, (steps,) * batch, (target.shape[1],) * batch)
        _update(optimizer, loss)

    return step


def translation(device: str, size: Size = Size.FULL) -> Step:
    """Batches of 128 sentence pairs; length: source and target tokens."""
    is_full = size is Size.FULL
    batch, words = (128, 32000) if is_full else (2, 50)
    model = _placed(Translation(hidden=1024 if is_full else 16, layers=4, vocabulary=words), device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step(length: tuple[int, ...]) -> None:
        source = torch.randint(0, words, (length[0], batch), device=device)
        target = torch.randint(0, words, (length[1], batch), device=device)
        logits = model(source, target)
        _update(optimizer, F.cross_entropy(logits.flatten(0, 1).float(), target.flatten()))

    return step


def transformer(device: str, size: Size = Size.FULL) -> Step:
    """Batches of 8 requests; length: tokens."""
    is_full = size is Size.FULL
    batch, words = (8, 32000) if is_full else (1, 50)
    network = Transformer(
        hidden=768 if is_full else 24, layers=8 if is_full else 1, heads=12, vocabulary=words
    )
    model = _placed(network, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step(length: tuple[int, ...]) -> None:
        tokens = torch.randint(0, words, (batch, length[0]), device=device)
        logits = model(tokens)
        _update(optimizer, F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten()))

    return step


def _placed(model: nn.Module, device: str) -> nn.Module:
    """On a GPU in bf16, recurrent weights in one block again as cuDNN wants them; on a CPU in fp32."""
    model = model.to(device)
    if device != "cpu":
        model = model.to(torch.bfloat16)
    for part in model.modules():
        if isinstance(part, nn.RNNBase):
            part.flatten_parameters()
    return model


def _update(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


NETWORKS: dict[str, Callable[..., Step]] = {
    "speech": speech,
    "translation": translation,
    "transformer": transformer,
}
