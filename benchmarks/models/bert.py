"""BERT-base from the transformers package, built from its configuration with random weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import BertConfig, BertForMaskedLM


def train(batch: str = "32", sequence: str = "128") -> Callable[[], object]:
    """One step of masked-language-model training: bf16 autocast over fp32 weights, AdamW."""
    model = BertForMaskedLM(BertConfig())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids, labels = torch.randint(30522, (2, int(batch), int(sequence)))
    mask = torch.ones_like(ids)

    def step() -> object:
        with torch.autocast(ids.device.type, torch.bfloat16):
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def infer(batch: str = "1", sequence: str = "128") -> Callable[[], object]:
    """Masked-language-model logits in fp16."""
    model = BertForMaskedLM(BertConfig()).to(torch.float16).eval()
    ids = torch.randint(30522, (int(batch), int(sequence)))

    @torch.inference_mode()
    def step() -> object:
        return model(input_ids=ids).logits

    return step
