"""The best choice for a set of GEMMs, found with few measurements.

All choices are ranked by a quick estimate; only the best of those are measured, degree by degree, and where
samples vary the best of them again (successive halving). `exhaustive` measures all: the yardstick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.measurement import Measurement, Status
from conccl.core.ops import Gemm
from conccl.tune.gemms.choice import (
    Choice,
    GemmSet,
    KernelChoice,
    default_concurrency,
    kernel_choices,
    sequential,
)

Estimate = Callable[[GemmSet, Choice], float]
Measure = Callable[[GemmSet, Choice], Measurement]

KEPT = 4
"""Of the choices of a set, the inverse of the share that is measured at all ..."""

ROUNDS = 3
"""... and how often those that vary are halved and measured again."""

VARIES = 0.01
"""Spread of samples, relative to their median, from which on a second look is worth its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What was found for a set: the best choice of every degree, and what it cost to find."""

    gemms: GemmSet
    times_ns: dict[Choice, float]
    """Median of every choice that was measured; sequential and default concurrency are always there."""
    measurements: int

    @property
    def best(self) -> Choice:
        """The fastest."""
        return min(self.times_ns, key=self.times_ns.__getitem__)

    @property
    def best_ns(self) -> float:
        """Its time."""
        return self.times_ns[self.best]

    @property
    def sequential_ns(self) -> float:
        """The vendor's kernels one after the other."""
        return self.times_ns[sequential(self.gemms)]

    @property
    def default_ns(self) -> float:
        """The vendor's kernels all at once."""
        return self.times_ns[default_concurrency(self.gemms)]

    def best_of_degree(self, degree: int, /) -> Choice:
        """The fastest of those that run so many at once, grouped launches aside."""
        allowed = [one for one in self.times_ns if one.degree == degree and not one.grouped]
        if not allowed:
            degrees = ", ".join(map(str, self.gemms.degrees))
            raise InputError(f"set {self.gemms.name!r} has no choice of degree {degree}; it has {degrees}.")
        return min(allowed, key=self.times_ns.__getitem__)


def all_choices(gemms: GemmSet, /) -> tuple[Choice, ...]:
    """Degrees by kernels, the same share for all GEMMs of the set, and one grouped launch."""
    choices = [
        Choice(degree=degree, kernels=(kernel,) * len(gemms))
        for degree in gemms.degrees
        for kernel in kernel_choices()
    ]
    if gemms.can_be_grouped:
        choices.append(Choice(degree=1, kernels=sequential(gemms).kernels, grouped=True))
    return tuple(choices)


def exhaustive(gemms: GemmSet, /, *, measure: Measure) -> Tuned:
    """Measure every choice, and every mixture of kernels that `mixed` has for it."""
    times: dict[Choice, float] = {}
    count = _measure_all(all_choices(gemms), gemms, times, measure)
    for degree in gemms.degrees:
        count += _measure_all(mixed(gemms, degree=degree, times=times), gemms, times, measure)
    return Tuned(gemms=gemms, times_ns=times, measurements=count)


def measured(gemms: GemmSet, choices: Iterable[Choice], /, *, measure: Measure) -> Tuned:
    """Measure these choices, and sequential and default concurrency where they are not among them."""
    times: dict[Choice, float] = {}
    yardsticks = (sequential(gemms), default_concurrency(gemms))
    count = _measure_all(dict.fromkeys([*yardsticks, *choices]), gemms, times, measure)
    return Tuned(gemms=gemms, times_ns=times, measurements=count)


def search(gemms: GemmSet, /, *, measure: Measure, estimate: Estimate, kept: int = KEPT) -> Tuned:
    """Measure the most promising ``1/kept`` of all choices, then mixtures at the best degree."""
    yardsticks = dict.fromkeys((sequential(gemms), default_concurrency(gemms)))
    ranked = sorted(all_choices(gemms), key=lambda choice: estimate(gemms, choice))
    promising = dict.fromkeys(ranked[: max(1, len(ranked) // kept)])
    times: dict[Choice, float] = {}
    count = _measure_all(
        [*yardsticks, *(one for one in promising if one not in yardsticks)], gemms, times, measure
    )
    if len(gemms.distinct) > 1:
        best = min(times, key=times.__getitem__)
        by_estimate = sorted(
            mixed(gemms, degree=best.degree, times=times), key=lambda one: estimate(gemms, one)
        )
        count += _measure_all(by_estimate[:2], gemms, times, measure)
    return Tuned(gemms=gemms, times_ns=times, measurements=count)


def mixed(gemms: GemmSet, /, *, degree: int, times: dict[Choice, float]) -> Iterator[Choice]:
    """Sets of unlike GEMMs: from the fastest choice of this degree, one GEMM's kernel changed at a time."""
    if len(gemms.distinct) < 2:
        return
    of_degree = [one for one in times if one.degree == degree and not one.grouped]
    if not of_degree:
        return
    start = min(of_degree, key=times.__getitem__)
    for op in gemms.distinct:
        for kernel in kernel_choices():
            changed = _changed(gemms, start, op=op, kernel=kernel)
            if changed != start:
                yield changed


def _changed(gemms: GemmSet, choice: Choice, *, op: Gemm, kernel: KernelChoice) -> Choice:
    pairs = zip(gemms.gemms, choice.kernels, strict=True)
    return Choice(degree=choice.degree, kernels=tuple(kernel if one == op else now for one, now in pairs))


def _measure_all(
    choices: Iterable[Choice], gemms: GemmSet, times: dict[Choice, float], measure: Measure
) -> int:
    """Measure those not known yet; the number of samples taken. What fails is left out."""
    count = 0
    unsure: list[Choice] = []
    for choice in choices:
        if choice in times:
            continue
        measurement = measure(gemms, choice)
        count += max(1, len(measurement.samples_ns))
        if measurement.status is Status.OK:
            times[choice] = float(measurement.median_ns or 0)
            if (measurement.relative_iqr or 0) > VARIES:
                unsure.append(choice)
    return count + _halve(unsure, gemms, times, measure)


def _halve(unsure: list[Choice], gemms: GemmSet, times: dict[Choice, float], measure: Measure) -> int:
    """Look again at the better half of those whose samples vary, a few times."""
    count = 0
    for _ in range(ROUNDS):
        unsure = sorted(unsure, key=times.__getitem__)[: len(unsure) // 2]
        for choice in unsure:
            measurement = measure(gemms, choice)
            count += max(1, len(measurement.samples_ns))
            if measurement.status is Status.OK:
                times[choice] = min(times[choice], float(measurement.median_ns or 0))
    return count
