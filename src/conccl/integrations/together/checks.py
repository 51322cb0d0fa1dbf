"""What matmuls must satisfy to run together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from conccl.core.errors import InputError

Operands = tuple[torch.Tensor, torch.Tensor]


def require_independent(pairs: Sequence[Operands], out: Sequence[torch.Tensor] | None, /) -> None:
    """Matrices that fit, of one device and element type; outputs that fit and overlap nothing."""
    for index, (a, b) in enumerate(pairs):
        _require_product(index, a, b)
        first = pairs[0][0]
        for one in (a, b):
            if one.device != first.device or one.dtype != first.dtype:
                raise InputError(
                    f"matmul {index} has an operand of {one.dtype} on {one.device};"
                    f" matmul 0 has {first.dtype} on {first.device}. Give one element type"
                    " and device."
                )
    if out is not None:
        _require_outputs(pairs, out)


def _require_product(index: int, a: torch.Tensor, b: torch.Tensor) -> None:
    if a.dim() != 2 or b.dim() != 2:
        raise InputError(
            f"matmul {index} has shapes {tuple(a.shape)} and {tuple(b.shape)};"
            " give matrices (flatten batches)."
        )
    if a.shape[1] != b.shape[0]:
        raise InputError(
            f"matmul {index}: {tuple(a.shape)} @ {tuple(b.shape)} does not fit; the first's columns must be"
            " the second's rows."
        )


def _require_outputs(pairs: Sequence[Operands], out: Sequence[torch.Tensor]) -> None:
    if len(out) != len(pairs):
        raise InputError(f"out has {len(out)} tensors for {len(pairs)} matmuls; give one for each.")
    for index, ((a, b), result) in enumerate(zip(pairs, out, strict=True)):
        wanted = (a.shape[0], b.shape[1])
        if tuple(result.shape) != wanted or result.dtype != a.dtype or result.device != a.device:
            raise InputError(
                f"out[{index}] is {tuple(result.shape)} {result.dtype} on {result.device}; it must be"
                f" {wanted} {a.dtype} on {a.device}."
            )
        for position, other in enumerate(out[:index]):
            if _overlap(result, other):
                raise InputError(f"out[{index}] and out[{position}] share memory; give each its own.")
        for position, operands in enumerate(pairs):
            if any(_overlap(result, operand) for operand in operands):
                raise InputError(
                    f"out[{index}] shares memory with an operand of matmul {position}: they would depend on"
                    " each other. Give an output of its own, or run them one after the other."
                )


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the bytes between first and last element meet; exact for matrices that are dense."""
    if one.numel() == 0 or other.numel() == 0:
        return False
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return False
    start, stop = _bytes(one)
    other_start, other_stop = _bytes(other)
    return start < other_stop and other_start < stop


def _bytes(tensor: torch.Tensor) -> tuple[int, int]:
    size = tensor.element_size()
    last = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = int(tensor.storage_offset()) * size
    return start, start + (int(last) + 1) * size
