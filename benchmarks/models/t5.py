"""T5-small from the transformers package, built from its configuration with random weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import T5Config, T5ForConditionalGeneration

SMALL = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
"""Raffel et al. 2020, table of T5 sizes."""


def train(batch: str = "16", source: str = "256", target: str = "64") -> Callable[[], object]:
    """One step of sequence-to-sequence training in bf16 with AdamW."""
    config = T5Config(**SMALL, vocab_size=32128, decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config).to(torch.bfloat16)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(32128, (int(batch), int(source)))
    labels = torch.randint(32128, (int(batch), int(target)))

    def step() -> object:
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step
