"""Independent GEMMs, and the ways to run them: kernels by the share they were tuned for, how many at once."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conccl.core.errors import InputError
from conccl.core.kinds import DType
from conccl.core.ops import Gemm

DEGREES = (1, 2, 4, 8, 16)
"""Concurrency degrees: how many GEMMs run at once."""

PARTS = (1, 2, 4, 8)
"""Kernels are tuned on the whole device, a half, a quarter and an eighth of its SMs and L2."""


class Budget(enum.StrEnum):
    """How many SMs a kernel may occupy."""

    ALL = "all"
    SHARE = "share"
    """No more than the part of the device that it was tuned for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChoice:
    """Which kernel of a GEMM: the one that was tuned for 1/``part`` of the device, within a budget of SMs."""

    part: int = 1
    budget: Budget = Budget.ALL

    @property
    def is_vendor(self) -> bool:
        """Whether it is what the vendor's library runs by itself."""
        return self.part == 1


VENDOR = KernelChoice()


def kernel_choices() -> tuple[KernelChoice, ...]:
    """All kernels of a GEMM, the vendor's first."""
    shares = (
        KernelChoice(part=part, budget=budget) for part in PARTS[1:] for budget in (Budget.ALL, Budget.SHARE)
    )
    return (VENDOR, *shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How a set runs: ``degree`` lanes, each GEMM by its kernel; or all as one grouped kernel."""

    degree: int
    kernels: tuple[KernelChoice, ...]
    """One for each GEMM of the set, in its order."""
    grouped: bool = False
    """One launch for all: the GEMMs have the same n and k."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmSet:
    """GEMMs that do not depend on each other."""

    name: str
    gemms: tuple[Gemm, ...]
    source: str = ""
    """Where in which model."""

    def __post_init__(self) -> None:
        if not self.gemms:
            raise InputError(f"set {self.name!r} has no GEMMs; give one or more.")

    def __len__(self) -> int:
        return len(self.gemms)

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees that differ for so many GEMMs: up to the first that runs all at once."""
        return tuple(degree for degree in DEGREES if degree < 2 * len(self.gemms))

    @property
    def can_be_grouped(self) -> bool:
        """Whether one grouped kernel can do them: the same n, k, element type and layout."""
        kinds = {(one.n, one.k, one.dtype, one.out_dtype, one.layout, one.batch) for one in self.gemms}
        return len(self.gemms) > 1 and len(kinds) == 1 and self.gemms[0].batch == 1

    @property
    def distinct(self) -> tuple[Gemm, ...]:
        """Each GEMM once, in order of appearance."""
        return tuple(dict.fromkeys(self.gemms))


def sequential(gemms: GemmSet, /) -> Choice:
    """The vendor's kernels one after the other."""
    return Choice(degree=1, kernels=(VENDOR,) * len(gemms))


def default_concurrency(gemms: GemmSet, /) -> Choice:
    """The vendor's kernels all at once, each on a stream of its own (16 at most)."""
    return Choice(degree=gemms.degrees[-1], kernels=(VENDOR,) * len(gemms))


def read_sets(path: str | Path, /) -> tuple[GemmSet, ...]:
    """Sets from a JSON list of objects with name, dtype and gemms: [[m, n, k], ...]; source may be there."""
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read sets of GEMMs from {path}: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}.") from error
    if not isinstance(rows, list) or not rows:
        raise InputError(
            f'{path} must hold a list of sets: [{{"name": ..., "dtype": "bf16", "gemms": [[m, n, k]]}}].'
        )
    return tuple(_sets(rows, where=str(path)))


def _sets(rows: Sequence[Any], *, where: str) -> Iterator[GemmSet]:
    for index, row in enumerate(rows):
        here = f"{where}, set {index}"
        if not isinstance(row, dict) or not isinstance(row.get("gemms"), list):
            raise InputError(f'{here} must be an object with "gemms": [[m, n, k], ...].')
        name = str(row.get("name", index))
        try:
            dtype = DType(row.get("dtype", "bf16"))
        except ValueError:
            allowed = ", ".join(kind.value for kind in DType)
            raise InputError(f"{here} ({name}): dtype {row['dtype']!r} is not one of {allowed}.") from None
        gemms = tuple(_gemm(shape, dtype, where=f"{here} ({name})") for shape in row["gemms"])
        yield GemmSet(name=name, gemms=gemms, source=str(row.get("source", "")))


def _gemm(shape: Any, dtype: DType, *, where: str) -> Gemm:
    if (
        not isinstance(shape, list)
        or len(shape) != 3
        or not all(isinstance(size, int) and not isinstance(size, bool) for size in shape)
    ):
        raise InputError(f"{where}: a GEMM is [m, n, k] in whole numbers, not {shape!r}.")
    m, n, k = shape
    return Gemm(m=m, n=n, k=k, dtype=dtype)
