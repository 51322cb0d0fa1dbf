"""Ops between the device and the host: copies, and numbers that the host asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from conccl.core.kinds import Memory
from conccl.core.ops import Copy
from conccl.workloads.capture.blame import calling_line
from conccl.workloads.capture.program import HostWait, Program
from conccl.workloads.capture.values import EXACT_NUMEL, Values, assumed
from conccl.workloads.captured import Kernel

aten = torch.ops.aten


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """What a crossing needs of the capture."""

    program: Program
    values: Values
    recording: contextlib.AbstractContextManager[Any]
    """Ops that are called within it are recorded as the program's own."""


def _number(border: Border, tensor: torch.Tensor) -> Any:
    """``.item()``: one element, and the host waits."""
    op = Copy(nbytes=tensor.element_size(), source=Memory.DEVICE, destination=Memory.HOST)
    kernel = Kernel(name="_local_scalar_dense", op=op)
    border.program.launch("_local_scalar_dense", [kernel], wait=HostWait.STREAM)
    contents = border.values.of(tensor)
    if contents is not None:
        return contents.item()
    taken = assumed(tensor)
    border.program.warn(
        f"A number that only the GPU knows was read {calling_line()}: it was taken as {taken}."
    )
    return taken


def _equal(border: Border, one: torch.Tensor, other: torch.Tensor) -> bool:
    """torch.equal: a comparison, its reduction, and the host waits."""
    if one.shape != other.shape:
        return False
    with border.recording:
        return bool(aten.all.default(aten.eq.Tensor(one, other)).item())


def _to_copy(border: Border, source: torch.Tensor, **options: Any) -> Any:
    device = options.pop("device", None)
    if device is None or (device.type == "meta") == source.is_meta:
        return NotImplemented
    non_blocking = bool(options.pop("non_blocking", False))
    options.pop("pin_memory", None)
    options["memory_format"] = options.get("memory_format") or torch.preserve_format
    target = torch.empty_like(_shape_of(source), **options)
    if device.type != "meta":
        target = torch.empty_strided(target.size(), target.stride(), dtype=target.dtype)
    return _copy(border, target, source, non_blocking)


def _copy(border: Border, target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    """Types change on the host and layouts on the device; copies that may block wait for their stream.

    As aten/src/ATen/native/cuda/Copy.cu has it; a non-blocking copy is taken to be of pinned memory.
    """
    if target.is_meta == source.is_meta:
        return NotImplemented
    if not target.numel():
        return target
    wait = HostWait.NOTHING if non_blocking else HostWait.STREAM
    dense = source.shape == target.shape and target.stride() == source.stride()
    if target.is_meta:
        border.program.launch("copy_", [_moved(target, source=Memory.HOST)], wait=wait)
        if not dense and not target.is_contiguous():
            with border.recording:
                target.copy_(torch.empty_like(target, memory_format=torch.contiguous_format))
        _known_from(border.values, target, source)
    else:
        if not dense and not source.is_contiguous():
            with border.recording:
                source = source.contiguous()
        border.program.launch("copy_", [_moved(source, source=Memory.DEVICE)], wait=wait)
        _known_to(border.values, target, source)
    return target


def _moved(tensor: torch.Tensor, *, source: Memory) -> Kernel:
    destination = Memory.HOST if source is Memory.DEVICE else Memory.DEVICE
    nbytes = tensor.numel() * tensor.element_size()
    return Kernel(name="copy_", op=Copy(nbytes=nbytes, source=source, destination=destination))


def _known_from(values: Values, target: torch.Tensor, source: torch.Tensor) -> None:
    if source.numel() > EXACT_NUMEL:
        values.forget(target)
        return
    contents = values.of(target)
    if contents is not None:
        contents.copy_(source)
    elif target.numel() * target.element_size() == target.untyped_storage().nbytes():
        values.set(target, source.expand(target.shape))


def _known_to(values: Values, target: torch.Tensor, source: torch.Tensor) -> None:
    """Give a host tensor the known contents of a device tensor, or what unknown numbers are taken as."""
    if target.numel() > EXACT_NUMEL:
        return
    contents = values.of(source)
    if contents is not None:
        target.copy_(contents)
    else:
        target.fill_(assumed(source))


def _shape_of(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def _index(border: Border, source: torch.Tensor, indices: Any) -> Any:
    """A mask is turned into positions first, for whose number the host waits."""
    if not any(map(_is_mask, indices)):
        return NotImplemented
    with border.recording:
        return aten.index.Tensor(source, _positions(indices))


def _index_put(func: Any) -> Callable[..., Any]:
    def put(
        border: Border, target: torch.Tensor, indices: Any, value: torch.Tensor, *rest: Any, **options: Any
    ) -> Any:
        """The same; one number put by one mask is a masked_fill_, which needs no positions."""
        if not any(map(_is_mask, indices)):
            return NotImplemented
        with border.recording:
            if len(indices) == 1 and value.numel() == 1 and not value.is_meta and func._schema.is_mutable:
                return aten.masked_fill_.Tensor(target, _trailing(indices[0], target), value)
            return func(target, _positions(indices), value, *rest, **options)

    return put


def _trailing(mask: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return mask.view(*mask.shape, *(1 for _ in range(target.dim() - mask.dim())))


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def _positions(indices: Any) -> list[Any]:
    found: list[Any] = []
    for index in indices:
        found.extend(aten.nonzero.default(index).unbind(1) if _is_mask(index) else [index])
    return found


SPARSE = 9
"""Place of the argument ``sparse`` of ``_embedding_bag_backward``."""


def _embedding_bag_backward(border: Border, *args: Any) -> Any:
    """A sparse gradient is put together from other ops (aten/src/ATen/native/EmbeddingBag.cpp)."""
    if not args[SPARSE]:
        return NotImplemented
    grad, indices, offsets, bags, sizes, _, rows, by_frequency, mode, _, weights, *rest = args
    with border.recording:
        return aten._embedding_bag_sparse_backward.default(
            grad, indices, offsets, bags, sizes, rows, by_frequency, mode, weights, *rest
        )


OPS: dict[Any, Callable[..., Any]] = {
    aten.index.Tensor: _index,
    aten.index_put_.default: _index_put(aten.index_put_.default),
    aten.index_put.default: _index_put(aten.index_put.default),
    aten._index_put_impl_.default: _index_put(aten._index_put_impl_.default),
    aten._local_scalar_dense.default: _number,
    aten.equal.default: _equal,
    aten._embedding_bag_backward.default: _embedding_bag_backward,
    aten._to_copy.default: _to_copy,
    aten.copy_.default: _copy,
}
"""Each gets the border before the op's own arguments; `NotImplemented`: nothing crosses."""
