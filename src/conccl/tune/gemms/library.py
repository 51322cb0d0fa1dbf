"""GO-kernels and logic of one device in a file: what tuning leaves and programs decide by.

The file is JSON with ``"schema": "conccl.gemm-library/1"``. It says for which device it was made, by which
executor ("sim": predicted) and with what software; libraries of one device can be merged, others are refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conccl.core.errors import InputError, StoreError
from conccl.core.files import write_file
from conccl.core.kinds import DType
from conccl.core.measurement import Environment
from conccl.core.ops import Gemm
from conccl.core.records import from_json_value, to_json_value
from conccl.tune.gemms.choice import VENDOR, Choice, GemmSet, KernelChoice, sequential
from conccl.tune.gemms.logic import GROUPED, Logic, Shape
from conccl.tune.gemms.search import Tuned

SCHEMA = "conccl.gemm-library/1"

NEAR = 3.0
"""How far, in doublings of m, n and k together, a shape may be from one that was tuned to use its kernel."""

CACHED = 4096
"""Decisions that are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The GO-kernel of one GEMM for one degree."""

    gemm: Gemm
    degree: int
    kernel: KernelChoice
    gain: float
    """Time with the vendor's kernel at this degree over time with this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How a set is to run, and why."""

    choice: Choice
    probability: float
    """Of the degree, as the logic sees it."""
    reason: str


@dataclass(slots=True, kw_only=True)
class Library:
    """What is known of one device."""

    environment: Environment
    sms: int
    logic: Logic
    entries: tuple[Entry, ...] = ()
    _known: dict[tuple[DType, int], list[Entry]] = field(init=False, repr=False)
    _decisions: dict[tuple[Any, ...], Decision] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._known = {}
        for entry in self.entries:
            self._known.setdefault((entry.gemm.dtype, entry.degree), []).append(entry)

    def decide(
        self, shapes: tuple[Shape, ...], /, *, dtype: DType, busy_sms: int = 0, grouping: bool = True
    ) -> Decision:
        """How GEMMs of these (m, n, k) are to run beside something that takes ``busy_sms``.

        ``grouping``: whether the caller can launch a grouped kernel. Decisions are remembered, so that asking
        again takes a microsecond or two.
        """
        key = (shapes, dtype, busy_sms, grouping)
        found = self._decisions.get(key)
        if found is None:
            if len(self._decisions) >= CACHED:
                self._decisions.clear()
            gemms = tuple(Gemm(m=m, n=n, k=k, dtype=dtype) for m, n, k in shapes)
            found = self._decisions[key] = self._decide(
                GemmSet(name="", gemms=gemms), busy_sms=busy_sms, grouping=grouping
            )
        return found

    def _decide(self, gemms: GemmSet, *, busy_sms: int, grouping: bool) -> Decision:
        if not 0 <= busy_sms < self.sms:
            raise InputError(
                f"busy_sms is {busy_sms}; {self.environment.device} has {self.sms} SMs:"
                f" give 0 to {self.sms - 1}."
            )
        dtype = gemms.gemms[0].dtype
        if (dtype, 1) not in self._known:
            dtypes = ", ".join(sorted({entry.gemm.dtype.value for entry in self.entries})) or "nothing"
            return _one_by_one(gemms, reason=f"the library was tuned for {dtypes}, not for {dtype}")
        if len(gemms) == 1:
            return _one_by_one(gemms, reason="one GEMM")
        class_, probability = self.logic.decide(
            [(op.m, op.n, op.k) for op in gemms.gemms],
            free_sms=self.sms - busy_sms,
            can_group=grouping and gemms.can_be_grouped,
            nbytes=dtype.nbytes,
        )
        if class_ == GROUPED:
            choice = Choice(degree=1, kernels=sequential(gemms).kernels, grouped=True)
            return Decision(choice=choice, probability=probability, reason="one grouped launch")
        by_op = {op: self._kernel(op, class_) for op in gemms.distinct}
        choice = Choice(degree=class_, kernels=tuple(by_op[op] for op in gemms.gemms))
        return Decision(choice=choice, probability=probability, reason=f"{class_} at once")

    def _kernel(self, op: Gemm, degree: int) -> KernelChoice:
        """The nearest tuned shape's kernel; the vendor's where none is near."""
        entries = self._known.get((op.dtype, degree), [])
        nearest = min(entries, key=lambda entry: _distance(entry.gemm, op), default=None)
        if nearest is None or _distance(nearest.gemm, op) > NEAR:
            return VENDOR
        return nearest.kernel


def _one_by_one(gemms: GemmSet, *, reason: str) -> Decision:
    return Decision(choice=sequential(gemms), probability=1.0, reason=reason)


def _distance(one: Gemm, other: Gemm) -> float:
    return abs(math.log2(one.m / other.m)) + abs(math.log2(one.n / other.n)) + abs(math.log2(one.k / other.k))


def entries_of(found: Iterable[Tuned], /) -> tuple[Entry, ...]:
    """GO-kernels: of every GEMM and degree the kernel of the fastest choice, over all sets that have them."""
    best: dict[tuple[Gemm, int], Entry] = {}
    for tuned in found:
        for degree in tuned.gemms.degrees:
            choice = tuned.best_of_degree(degree)
            vendor = Choice(degree=degree, kernels=(VENDOR,) * len(tuned.gemms))
            gain = tuned.times_ns[vendor] / tuned.times_ns[choice]
            for op, kernel in zip(tuned.gemms.gemms, choice.kernels, strict=True):
                known = best.get((op, degree))
                if known is None or gain > known.gain:
                    best[op, degree] = Entry(gemm=op, degree=degree, kernel=kernel, gain=round(gain, 4))
    return tuple(best.values())


def merged(libraries: Sequence[Library], /) -> Library:
    """The entries of all, the later of equal ones; the logic of the last. All must be of one environment."""
    if not libraries:
        raise InputError("no libraries to merge; give one or more.")
    first = libraries[0]
    for other in libraries[1:]:
        require_alike(other, first.environment, sms=first.sms, where="a library to merge")
    entries = {(entry.gemm, entry.degree): entry for one in libraries for entry in one.entries}
    return Library(
        environment=first.environment,
        sms=first.sms,
        logic=libraries[-1].logic,
        entries=tuple(entries.values()),
    )


def require_alike(library: Library, environment: Environment, /, *, sms: int, where: str) -> None:
    """Refuse a library of another device, executor or software."""
    found = library.environment
    if (found.executor, found.device, library.sms) != (environment.executor, environment.device, sms):
        raise StoreError(
            f"{where} was made for {found.device} ({library.sms} SMs, executor {found.executor});"
            f" this is {environment.device} ({sms} SMs, executor {environment.executor})."
            " Tune on this one: conccl tune gemms."
        )
    if found.versions != environment.versions:
        raise StoreError(
            f"{where} was made with {_said(found.versions)}; this is {_said(environment.versions)}."
            " Tune again: conccl tune gemms."
        )


def _said(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) or "nothing stated"


def save(library: Library, path: str | Path, /) -> None:
    """Write the library; what stood there is replaced."""
    document = {
        "schema": SCHEMA,
        "environment": to_json_value(library.environment),
        "sms": library.sms,
        "logic": to_json_value(library.logic),
        "entries": [_row(entry) for entry in library.entries],
    }
    write_file(path, [json.dumps(document, indent=1).encode(), b"\n"])


def load(path: str | Path, /) -> Library:
    """Read a library. Raises `StoreError` where it is none, or of another version of this file."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"cannot read library {path}: {error.strerror}.") from error
    except ValueError as error:
        raise StoreError(f"library {path} is not JSON: {error}.") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise StoreError(f"{path} has schema {schema!r}; this version reads {SCHEMA!r}. Tune again.")
    try:
        return Library(
            environment=from_json_value(document["environment"], Environment),
            sms=int(document["sms"]),
            logic=from_json_value(document["logic"], Logic),
            entries=tuple(_entry(row) for row in document["entries"]),
        )
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise StoreError(f"library {path} is damaged: {error}. Tune again.") from error


def _row(entry: Entry) -> dict[str, Any]:
    op = entry.gemm
    return {
        "m": op.m,
        "n": op.n,
        "k": op.k,
        "dtype": op.dtype.value,
        "degree": entry.degree,
        "part": entry.kernel.part,
        "budget": entry.kernel.budget.value,
        "gain": entry.gain,
    }


def _entry(row: Mapping[str, Any]) -> Entry:
    return Entry(
        gemm=Gemm(m=row["m"], n=row["n"], k=row["k"], dtype=DType(row["dtype"])),
        degree=int(row["degree"]),
        kernel=from_json_value({"part": row["part"], "budget": row["budget"]}, KernelChoice),
        gain=float(row["gain"]),
    )
