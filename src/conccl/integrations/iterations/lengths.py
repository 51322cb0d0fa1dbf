"""How long a batch is: the padded lengths of its sequences, from shapes, so that no GPU is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from conccl.core.errors import InputError

LengthOf = Callable[[Any], "int | Sequence[int] | Mapping[str, int]"]
"""A user's own: a batch's length, several of them, or several by name."""

ONLY = "length"
"""The name of a length that stands alone."""

_FOLLOWERS = ("mask", "token_type_ids", "position_ids")
"""Parts of keys whose tensors are as long as others of the batch: they count where nothing else does."""

_ADVICE = "Give length=FUNCTION: it takes a batch and returns its length, or several by name."


def lengths_of(batch: Any, length: LengthOf | None = None, /) -> dict[str, int]:
    """Name -> length of a batch; one length alone is called ``length``.

    Without a function of the user's: the time steps of every packed sequence or jagged tensor, the second
    dimension of every whole-number tensor [batch, length] (token ids), or, where there are none, of masks or
    of real tensors [batch, length, features]. Raises `InputError` where nothing of that is found, or where a
    length is below 1.
    """
    found = _given(length(batch)) if length is not None else _found(batch)
    for name, value in found.items():
        if value < 1:
            raise InputError(f"a batch of {name} {value}. A length is a whole number above 0.")
    return found


def sequences_of(batch: Any, /) -> int | None:
    """How many sequences a batch has; None where no tensor says."""
    for _, part in _parts(batch, ""):
        if isinstance(part, PackedSequence):
            return int(part.batch_sizes[0])
        if part.ndim:
            return int(part.shape[0])
    return None


def _given(value: Any, /) -> dict[str, int]:
    if isinstance(value, Mapping):
        return {_column(str(name)): _whole(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        values = [_whole(one) for one in value]
        return {ONLY: values[0]} if len(values) == 1 else {f"length_{i}": v for i, v in enumerate(values)}
    return {ONLY: _whole(value)}


def _whole(value: Any, /) -> int:
    try:
        whole = int(value)
        if whole == value:
            return whole
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise InputError(f"the length function returned {value!r}. It must be a whole number above 0.")


def _found(batch: Any, /) -> dict[str, int]:
    parts = list(_parts(batch, ""))
    for kind in (_steps, _tokens, _masks, _features):
        found = {name: steps for name, part in parts if (steps := kind(name, part)) is not None}
        if "decoder_input_ids" in found:
            found.pop("labels", None)  # the same tokens, shifted
        if found:
            return {_column(name): steps for name, steps in found.items()}
    shapes = ", ".join(f"{name or 'it'} {tuple(p.shape)}" for name, p in parts if isinstance(p, torch.Tensor))
    raise InputError(f"no sequences in a batch ({shapes or type(batch).__name__}). {_ADVICE}")


def _column(name: str, /) -> str:
    if not name:
        return ONLY
    return name if name == ONLY or name.startswith("length_") else f"length_{name}"


def _parts(value: Any, name: str, /) -> Iterator[tuple[str, Any]]:
    """Tensors and packed sequences of nested tuples, lists and mappings, by key or place."""
    if isinstance(value, torch.Tensor | PackedSequence):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _parts(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, tuple | list):
        for place, item in enumerate(value):
            yield from _parts(item, f"{name}.{place}" if name else str(place))


def _steps(name: str, part: Any, /) -> int | None:  # noqa: ARG001
    if isinstance(part, PackedSequence):
        return len(part.batch_sizes)
    if isinstance(part, torch.Tensor) and part.is_nested and part.layout is torch.jagged:
        return int(part.offsets().diff().max())  # type: ignore[attr-defined]
    return None


def _tokens(name: str, part: Any, /) -> int | None:
    is_follower = any(word in name for word in _FOLLOWERS)
    return int(part.shape[1]) if _is_whole(part) and part.ndim == 2 and not is_follower else None


def _masks(name: str, part: Any, /) -> int | None:
    is_flat = isinstance(part, torch.Tensor) and part.ndim == 2
    return int(part.shape[1]) if is_flat and "mask" in name else None


def _features(name: str, part: Any, /) -> int | None:  # noqa: ARG001
    is_sequence = isinstance(part, torch.Tensor) and part.is_floating_point() and part.ndim == 3
    return int(part.shape[1]) if is_sequence else None


def _is_whole(part: Any, /) -> bool:
    return (
        isinstance(part, torch.Tensor)
        and not part.is_nested
        and not part.is_floating_point()
        and not part.is_complex()
        and part.dtype is not torch.bool
    )
