"""Two stores of measurements side by side: SAME, FASTER, SLOWER or AMBIGUOUS for every cell, as NVBench does.

A difference of medians is judged by the noise of both cells (interquartile range over median). Below what
matters, or below the smaller noise, it is none; between both noises nobody can tell; above it is real.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conccl.bench.store import read_store
from conccl.core.errors import InputError, StoreError
from conccl.core.measurement import Environment, Measurement, Status

MATTERS = 0.01
"""Relative difference below which two times count as the same, unless told otherwise."""


class Verdict(enum.StrEnum):
    """How the second store's cell stands to the first one's."""

    SAME = "SAME"
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell that both stores have measured."""

    label: str
    a_ns: int
    b_ns: int
    noise: tuple[float, float]
    """Relative interquartile range of both."""
    verdict: Verdict

    @property
    def change(self) -> float:
        """Relative change of the time; below 0 is faster."""
        return self.b_ns / self.a_ns - 1.0 if self.a_ns else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmatched:
    """A cell that cannot be compared."""

    label: str
    reason: str
    broke: bool = False
    """Whether it ran in the first store and failed in the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two stores, cell by cell."""

    a: Environment
    b: Environment
    cells: tuple[Cell, ...]
    unmatched: tuple[Unmatched, ...]

    @property
    def is_worse(self) -> bool:
        """Whether some cell is slower or ran only in the first store."""
        return any(cell.verdict is Verdict.SLOWER for cell in self.cells) or any(
            one.broke for one in self.unmatched
        )

    def count(self, verdict: Verdict, /) -> int:
        """Cells of a verdict."""
        return sum(1 for cell in self.cells if cell.verdict is verdict)


def compare(a: Path, b: Path, /, *, matters: float = MATTERS, unlike: bool = False) -> Compared:
    """Compare two stores, or the stores of two folders by name.

    Raises `StoreError` where they come from unlike machines (executor, device, GPUs, emulation) and
    ``unlike`` does not allow it; versions of software may differ.
    """
    if not 0.0 <= matters < 1.0:
        raise InputError(f"a difference of {matters} that matters; give a share from 0 to 1, as 0.01.")
    stores = [_stores(path) for path in (a, b)]
    shared = [name for name in stores[0] if name in stores[1]]
    pairs: list[tuple[str, Path, Path]]
    if len(stores[0]) == len(stores[1]) == 1:
        ((one,), (other,)) = (store.values() for store in stores)
        pairs = [("", one, other)]
    elif shared:
        pairs = [(name, stores[0][name], stores[1][name]) for name in shared]
    else:
        raise StoreError(f"{a} and {b} hold no stores of the same name. Give two files.")
    found = [_compared(name, one, other, matters=matters, unlike=unlike) for name, one, other in pairs]
    return Compared(
        a=found[0].a,
        b=found[0].b,
        cells=tuple(cell for one in found for cell in one.cells),
        unmatched=tuple(cell for one in found for cell in one.unmatched),
    )


def _stores(path: Path) -> dict[str, Path]:
    """The stores of a folder by name, or the file itself."""
    if not path.is_dir():
        return {path.name: path}
    found = {one.name: one for one in sorted(path.glob("store*.jsonl"))}
    if not found:
        raise StoreError(f"{path} holds no store.jsonl. Give a folder that characterize --output wrote.")
    return found


def _compared(name: str, a: Path, b: Path, *, matters: float, unlike: bool) -> Compared:
    (here, first), (there, second) = read_store(a), read_store(b)
    if not unlike:
        _require_alike(a, b, here, there)
    ones, others = _by_label(first), _by_label(second)
    prefix = (
        f"{name.removeprefix('store.').removesuffix('.jsonl')}/" if name not in ("", "store.jsonl") else ""
    )
    cells: list[Cell] = []
    unmatched: list[Unmatched] = []
    for label in dict.fromkeys((*ones, *others)):
        one, other = ones.get(label), others.get(label)
        reason = _why_not(one, "first") or _why_not(other, "second")
        if reason or one is None or other is None:
            broke = one is not None and not _why_not(one, "") and other is not None
            unmatched.append(Unmatched(label=prefix + label, reason=reason, broke=broke))
        else:
            cells.append(_cell(prefix + label, one, other, matters=matters))
    return Compared(a=here, b=there, cells=tuple(cells), unmatched=tuple(unmatched))


def _by_label(measurements: tuple[Measurement, ...]) -> Mapping[str, Measurement]:
    """The latest measurement of every label."""
    return {one.label: one for one in measurements}


def _require_alike(a: Path, b: Path, here: Environment, there: Environment) -> None:
    for field in ("executor", "device", "gpus", "emulated"):
        one, other = getattr(here, field), getattr(there, field)
        if one != other:
            raise StoreError(
                f"{a} has {field} {one!r} and {b} {other!r}: unlike machines. Give --unlike to compare them"
                " all the same."
            )


def _why_not(one: Measurement | None, which: str) -> str:
    """Why a cell has no time to compare; empty where it has."""
    if one is None:
        return f"not in the {which} store"
    if one.status is not Status.OK:
        return f"{one.status} in the {which} store: {one.reason}"
    if one.proved is False:
        return f"in the {which} store its strategy was not seen to run: {one.proof}"
    return ""


def _cell(label: str, one: Measurement, other: Measurement, *, matters: float) -> Cell:
    a_ns, b_ns = one.median_ns or 0, other.median_ns or 0
    noise = (one.relative_iqr or 0.0, other.relative_iqr or 0.0)
    return Cell(
        label=label,
        a_ns=a_ns,
        b_ns=b_ns,
        noise=noise,
        verdict=verdict_of(a_ns, b_ns, noise=noise, matters=matters),
    )


def verdict_of(a_ns: int, b_ns: int, /, *, noise: tuple[float, float], matters: float) -> Verdict:
    """What a difference of medians means, given the noise of both."""
    change = abs(b_ns - a_ns) / max(1, a_ns)
    if change <= max(matters, min(noise)):
        return Verdict.SAME
    if change <= max(noise):
        return Verdict.AMBIGUOUS
    return Verdict.FASTER if b_ns < a_ns else Verdict.SLOWER
