"""Where tensors must be together: CUDA kernels read no tensors of the host."""

from __future__ import annotations

from typing import Any

import torch

from conccl.workloads.capture.tensors import is_on_device, tensors_in


class DeviceMismatchError(RuntimeError):
    """A tensor of the host beside one of the GPU, in words like PyTorch's own."""


def require_one_device(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> None:
    """Raise `DeviceMismatchError` where CUDA would refuse: single numbers and lengths may be on the host."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            if value.dim() and not value.is_meta:
                break
        elif isinstance(value, (list, tuple)) and any(_is_of_the_host(item) for item in value):
            break
    else:
        return
    name = func._schema.name.removeprefix("aten::")
    if name.removesuffix("_") in _TAKING_BOTH or name.startswith("_foreach"):
        return
    if not any(is_on_device(tensor) for tensor in tensors_in((args, kwargs))):
        return
    raise DeviceMismatchError(
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
        f" (in {name})"
    )


def _is_of_the_host(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and not value.is_meta


_TAKING_BOTH = frozenset(
    {
        "index", "index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put", "copy", "_to_copy",
        "_ctc_loss", "_ctc_loss_backward", "_pack_padded_sequence", "_pad_packed_sequence", "set",
        "_fused_sdp_choice", "_cudnn_rnn", "_cudnn_rnn_backward", "segment_reduce",
    }
)  # fmt: skip
"""Ops that take indices, lengths or what is copied from the host."""


def is_mismatch(error: BaseException, /) -> bool:
    """Whether code failed because tensors were in two places, by whoever says so."""
    text = str(error)
    return isinstance(error, DeviceMismatchError) or (
        isinstance(error, (RuntimeError, ValueError))
        and "device" in text
        and "meta" in text
        and "cpu" in text
    )
