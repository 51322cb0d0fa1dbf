"""What is known of the contents of device tensors.

Meta tensors have none. But programs decide things by small tensors of integers and booleans (lengths,
masks, token ids, positions, the experts that a router chose), so those are computed on the host beside them,
exactly, as long as all that they come from is known. What only a GPU could know is assumed:

- a number is 1, or 0 where it counts overflows; a condition is false, "all" is true, "any" is false;
- indices that an order of unknown values gives (top-k, sort, argmax, sampling) are spread evenly;
- sizes that depend on unknown data are the largest possible.

Contents belong to storages, so views and in-place changes need no rules of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from conccl.workloads.capture.tensors import is_on_device, tensors_in

EXACT_NUMEL = 1 << 20
"""Integers and booleans are followed up to this many elements."""

FLOAT_NUMEL = 1 << 12
"""Floats up to this many: scales, counters, steps of optimizers, norms' weights."""

_PURGE_AT = 1 << 12


class Values:
    """The contents of storages, as far as they are known."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[StorageWeakRef, torch.UntypedStorage]] = {}
        self._purge_at = _PURGE_AT

    def of(self, tensor: torch.Tensor, /) -> torch.Tensor | None:
        """A host tensor that shares the known contents (a change of it is a change of them), or None."""
        found = self._known.get(tensor.untyped_storage()._cdata)
        if found is None or found[0].expired():
            return None
        mirror = torch.empty(0, dtype=tensor.dtype)
        return mirror.set_(found[1], tensor.storage_offset(), tensor.size(), tensor.stride())

    def set(self, tensor: torch.Tensor, contents: torch.Tensor, /) -> None:
        """These are the tensor's contents, and all that its storage holds besides are zeros."""
        if not _is_followed(tensor):
            return
        storage = tensor.untyped_storage()
        self._known[storage._cdata] = (
            StorageWeakRef(storage),
            torch.zeros(storage.nbytes(), dtype=torch.uint8).untyped_storage(),
        )
        mirror = self.of(tensor)
        assert mirror is not None
        mirror.copy_(contents)
        if len(self._known) > self._purge_at:
            self._purge()

    def forget(self, tensor: torch.Tensor, /) -> None:
        """Something unknown was written into the tensor."""
        self._known.pop(tensor.untyped_storage()._cdata, None)

    def _purge(self) -> None:
        self._known = {key: found for key, found in self._known.items() if not found[0].expired()}
        self._purge_at = max(_PURGE_AT, 2 * len(self._known))

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """An op was called: compute what it gives where all that it reads is known."""
        outputs = [tensor for tensor in tensors_in(out) if _has_memory(tensor)]
        changed = written_by(func, args, kwargs)
        if all(map(_is_followed, outputs)) and all(map(_is_followed, changed)):
            found, mirrors = self._mirrored((args, kwargs))
            if found and self._computed(func, mirrors, out, in_place=bool(changed)):
                return
        if func._schema.name not in KEEPING:
            for tensor in changed:
                self.forget(tensor)
        self._assume(func, args, kwargs, outputs)

    def _computed(self, func: Any, mirrors: Any, out: Any, *, in_place: bool) -> bool:
        try:
            results = func(*mirrors[0], **mirrors[1])
        except Exception:  # values may not fit where others were only assumed: then nothing is known
            return False
        if not in_place:
            for tensor, result in zip(tensors_in(out), tensors_in(results), strict=False):
                if _has_memory(tensor) and tensor.shape == result.shape:
                    self.set(tensor, result)
        return True

    def _mirrored(self, value: Any) -> tuple[bool, Any]:
        """The same arguments with host tensors; false where one is unknown."""
        if isinstance(value, torch.Tensor):
            if not is_on_device(value):
                return True, value
            mirror = self.of(value) if _has_memory(value) else None
            return mirror is not None, mirror
        if isinstance(value, (list, tuple)):
            items = [self._mirrored(item) for item in value]
            return all(found for found, _ in items), type(value)(item for _, item in items)
        if isinstance(value, dict):
            pairs = {key: self._mirrored(item) for key, item in value.items()}
            return all(found for found, _ in pairs.values()), {key: item for key, (_, item) in pairs.items()}
        if isinstance(value, torch.device):
            return True, torch.device("cpu")
        return True, value

    def _assume(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: list[torch.Tensor]
    ) -> None:
        """Indices by an unknown order are spread evenly."""
        name = func._schema.name.removeprefix("aten::")
        if name == "all" and outputs:
            self.set(outputs[0], torch.ones((), dtype=torch.bool))
        if name not in ORDERS or not outputs:
            return
        indices = outputs[-1]
        if indices.dtype != torch.int64 or not _is_followed(indices):
            return
        source = args[0]
        dim = _dim_of(func, args, kwargs)
        choices = int(source.shape[dim]) if source.dim() and dim is not None else source.numel()
        spread = torch.arange(indices.numel()) % max(1, choices)
        if dim is not None and name in ("topk", "sort", "multinomial") and indices.dim():
            spread = spread.view(torch.Size(_moved(indices.shape, dim))).movedim(-1, dim)
        self.set(indices, spread.reshape(indices.shape))


ORDERS = frozenset(
    {"topk", "sort", "argmax", "argmin", "max", "min", "multinomial", "kthvalue", "mode", "median"}
)
"""Ops whose last output are indices that depend on the order of values."""


KEEPING = frozenset({"aten::_amp_foreach_non_finite_check_and_unscale_"})
"""Ops that change no value that anyone reads: no overflow is assumed."""


def _moved(shape: torch.Size, dim: int) -> list[int]:
    sizes = list(shape)
    sizes.append(sizes.pop(dim))
    return sizes


def _dim_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    for index, argument in enumerate(func._schema.arguments):
        if argument.name == "dim":
            given = kwargs.get("dim", args[index] if index < len(args) else argument.default_value)
            return None if given is None else int(given)
    return -1


_WRITTEN: dict[Any, tuple[tuple[int, str], ...]] = {}


def written_by(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> list[torch.Tensor]:
    """Device tensors among the arguments that the op changes."""
    places = _WRITTEN.get(func)
    if places is None:
        places = _WRITTEN[func] = tuple(
            (index, argument.name)
            for index, argument in enumerate(func._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        )
    found = []
    for index, name in places:
        value = args[index] if index < len(args) else kwargs.get(name)
        found += [tensor for tensor in tensors_in(value) if _has_memory(tensor)]
    return found


def _has_memory(tensor: torch.Tensor) -> bool:
    return is_on_device(tensor) and tensor.layout is torch.strided


def _is_followed(tensor: torch.Tensor) -> bool:
    exact = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    most = EXACT_NUMEL if exact else FLOAT_NUMEL
    return tensor.untyped_storage().nbytes() <= most * tensor.element_size()


def assumed(tensor: torch.Tensor, /) -> bool | int | float:
    """What an unknown number is taken as."""
    if tensor.dtype == torch.bool:
        return False
    return 1.0 if tensor.dtype.is_floating_point else 1
