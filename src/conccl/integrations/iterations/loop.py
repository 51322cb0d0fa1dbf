"""A data loader as it was, with something done around each of its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Batches(Generic[T]):
    """Iterates a loader through a function; what else is asked for is the loader's own."""

    def __init__(self, loader: Iterable[T], through: Callable[[Iterable[T]], Iterator[T]], /) -> None:
        self._loader = loader
        self._through = through

    def __iter__(self) -> Iterator[T]:
        return self._through(self._loader)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
