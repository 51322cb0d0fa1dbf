"""Sets of GEMMs measured at every degree: what GO-kernels and the logic's examples are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from conccl.core.measurement import Measurement
from conccl.tune.gemms.choice import VENDOR, Choice, GemmSet
from conccl.tune.gemms.running import Runner
from conccl.tune.gemms.search import Estimate, Tuned, all_choices, measured

PROMISING = 3
"""Kernels that are measured at each degree, beside the vendor's: those with the lowest estimates."""


class Keeper(Protocol):
    """Where measurements are kept, so that an interrupted survey goes on: `conccl.bench.store.Store`."""

    def get(self, label: str, /) -> Measurement | None:
        """What is known of a label."""
        ...

    def add(self, measurements: Iterable[Measurement], /) -> None:
        """Keep these."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Measures what is not kept yet."""

    runner: Runner
    keeper: Keeper | None = None

    def __call__(self, gemms: GemmSet, choice: Choice, /) -> Measurement:
        """The measurement of a choice, kept or new."""
        label = label_of(gemms, choice)
        known = None if self.keeper is None else self.keeper.get(label)
        if known is not None:
            return known
        new = self.runner.measure(gemms, choice, label=label)
        if self.keeper is not None:
            self.keeper.add([new])
        return new


def label_of(gemms: GemmSet, choice: Choice, /) -> str:
    """What a choice for a set is kept under; it says the shapes, as names may be used twice."""
    shapes = "+".join(f"{one.m}x{one.n}x{one.k}:{one.dtype}" for one in gemms.gemms)
    if choice.grouped:
        return f"{shapes}|grouped"
    kernels = "+".join(f"{kernel.part}{kernel.budget.value[0]}" for kernel in choice.kernels)
    return f"{shapes}|{choice.degree}|{kernels}"


def survey(
    sets: Iterable[GemmSet],
    /,
    *,
    runner: Runner,
    estimate: Estimate,
    keeper: Keeper | None = None,
) -> Iterator[Tuned]:
    """Each set at every degree with the vendor's kernel and the most promising ones."""
    measure = Kept(runner=runner, keeper=keeper)
    for gemms in sets:
        yield measured(gemms, _worth_measuring(gemms, estimate), measure=measure)


def _worth_measuring(gemms: GemmSet, estimate: Estimate) -> list[Choice]:
    choices = all_choices(gemms)
    found = [one for one in choices if one.grouped]
    for degree in gemms.degrees:
        vendor = Choice(degree=degree, kernels=(VENDOR,) * len(gemms))
        others = [one for one in choices if one.degree == degree and not one.grouped and one != vendor]
        found += [vendor, *sorted(others, key=lambda one: estimate(gemms, one))[:PROMISING]]
    return found
