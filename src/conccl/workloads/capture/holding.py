"""How much memory a program holds between its steps: weights, gradients, what the optimizer keeps, inputs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import torch

_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})


def held_nbytes() -> int:
    """Bytes of all storages on the device that are alive; call it where no mode is active."""
    storages = {}
    for tensor in _tensors():
        if tensor.is_meta and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            storages[storage._cdata] = storage.nbytes()
    return sum(storages.values())


def _tensors() -> Iterator[torch.Tensor]:
    """Those that Python knows, and the gradients that hang on them."""
    for candidate in gc.get_objects():
        if type(candidate) in _TENSORS:
            yield candidate
            if candidate.is_leaf and candidate.grad is not None:
                yield candidate.grad
