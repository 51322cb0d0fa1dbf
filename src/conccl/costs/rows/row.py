"""One row of measurements, its values checked as they are asked for."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from conccl.core.errors import InputError, UnknownNameError
from conccl.core.ops import DType, Op, Pass
from conccl.core.units import parse_size

LARGEST = 1 << 62
"""Of a size; products of a few of these still have a floating-point value."""

E = TypeVar("E", bound=enum.StrEnum)


class Row:
    """A row's values, checked as they are asked for."""

    def __init__(self, values: Mapping[str, Any], /) -> None:
        self._values = values

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def count(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number of 1 (or ``least``) or more."""
        value = self._values.get(key, default)
        if key == "nbytes" and isinstance(value, str):
            value = parse_size(value)
        if value is None:
            raise InputError(f"{key} is missing; {self.name} needs it (a whole number of {least} or more).")
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or value != value // 1
            or value < least
        ):
            raise InputError(f"{key} is {value!r}; it must be a whole number of {least} or more.")
        if value > LARGEST:
            raise InputError(f"{key} is {value:g}; nothing has more than {LARGEST:g}.")
        return int(value)

    def flag(self, key: str) -> bool:
        """True or false; false where it is missing."""
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            raise InputError(f"{key} is {value!r}; it must be true or false.")
        return value

    def choice(self, key: str, kind: type[E], default: E) -> E:
        """A member of an enum by its value."""
        value = self._values.get(key, default)
        if value not in list(kind):
            raise UnknownNameError(kind=key, name=str(value), known=list(kind))
        return kind(value)

    @property
    def name(self) -> str:
        """The op's name."""
        name = self._values.get("op")
        if name is None:
            if not {"m", "n", "k"} & self._values.keys():
                raise InputError("the row names no op and has no m, n and k.")
            return "gemm"
        return str(name)

    @property
    def dtype(self) -> DType:
        """The element type; bf16 where it is missing."""
        return self.choice("dtype", DType, DType.BF16)

    @property
    def direction(self) -> Pass:
        """Forward where it is missing."""
        return self.choice("direction", Pass, Pass.FORWARD)


Maker = Callable[[Row], tuple[Op, ...]]
