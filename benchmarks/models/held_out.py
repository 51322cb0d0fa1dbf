"""Runs that nothing was fitted to: GPT-2 and Llama as transformers has them, and a ResNet-50 in bf16."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))


def gpt2(batch: str = "8", length: str = "1024") -> Callable[[], object]:
    """GPT-2 small in bf16, trained with fused AdamW."""
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415 (no dependency of the project)

    model = GPT2LMHeadModel(GPT2Config()).bfloat16().train()
    ids = torch.randint(0, 50257, (int(batch), int(length)))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss

    return step


def llama(layers: str = "8", length: str = "8192") -> Callable[[], object]:
    """Llama 3 8B's first layers reading one prompt."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    config = LlamaConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=int(layers),
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
    )
    model = LlamaForCausalLM(config).bfloat16().eval()
    ids = torch.randint(0, 128256, (1, int(length)))

    def step() -> object:
        with torch.no_grad():
            return model(input_ids=ids, use_cache=False).logits

    return step


def resnet(batch: str = "128") -> Callable[[], object]:
    """ResNet-50 in bf16, channels last, trained with SGD and momentum."""
    from resnet import resnet50  # noqa: PLC0415 (beside this file)

    last = torch.channels_last
    model = resnet50().bfloat16().to(memory_format=last)
    images = torch.randn(int(batch), 3, 224, 224, dtype=torch.bfloat16).to(memory_format=last)
    labels = torch.randint(0, 1000, (int(batch),))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step
