"""Plots of what was sampled: distributions with the chosen marked, and phases over time.

Records like those of `conccl.report.blocks`, each with a partial template that draws it as SVG.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor, log10, sqrt
from typing import ClassVar

Ticks = tuple[tuple[float, str], ...]
"""(value, label) along an axis."""


def nice_ticks(
    low: float, high: float, /, *, most: int = 9, label: Callable[[float], str] = "{:g}".format
) -> Ticks:
    """Ticks at 1, 2 or 5 times a power of ten from the lowest to the highest value.

    >>> nice_ticks(3, 47, most=6)
    ((10.0, '10'), (20.0, '20'), (30.0, '30'), (40.0, '40'))
    """
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** floor(log10(span / most))
    step = next(factor * power for factor in (1, 2, 5, 10) if span <= factor * power * most)
    values = [round(place * step, 12) for place in range(ceil(low / step), floor(high / step) + 1)]
    return tuple((value, label(value)) for value in values)


def decades(low: float, high: float, /, *, label: Callable[[float], str] = "{:g}".format) -> Ticks:
    """Powers of ten that hold both values between them.

    >>> decades(0.03, 20)
    ((0.01, '0.01'), (0.1, '0.1'), (1.0, '1'), (10.0, '10'), (100.0, '100'))
    """
    first, last = floor(log10(low)), ceil(log10(high))
    last += first == last
    return tuple((10.0**power, label(10.0**power)) for power in range(first, last + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From values to places along one axis of a picture."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float, /) -> float:
        """Where a value stands; beyond the ends: at the end."""
        low, high = self.low, self.high if self.high > self.low else self.low + 1
        value = min(high, max(low, value))
        place = log10(value / low) / log10(high / low) if self.is_log else (value - low) / (high - low)
        return self.start + place * (self.end - self.start)


MOST_STEMS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One bar of a histogram."""

    low: float
    high: float
    height: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A chosen one."""

    x: float
    share: float
    """Of the whole that it stands for, 0 to 1: its size."""
    text: str
    y: float = 0.0
    """Where there is a second axis."""

    @property
    def radius(self) -> float:
        """So that areas compare."""
        return 3.0 + 13.0 * sqrt(self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How often each value occurs, with the chosen above it."""

    template: ClassVar[str] = "histogram"
    title: str
    rule: str
    x_label: str
    y_label: str
    buckets: tuple[Bucket, ...]
    marks: tuple[Mark, ...]
    x_ticks: Ticks
    y_ticks: Ticks
    is_log: bool = False

    width: ClassVar[int] = 900
    height: ClassVar[int] = 320
    marks_at: ClassVar[int] = 24
    """Height at which the chosen are drawn."""

    @property
    def across(self) -> Scale:
        """The axis of values."""
        low, high = self.buckets[0].low, self.buckets[-1].high
        return Scale(low=low, high=high, start=56, end=self.width - 20, is_log=self.is_log)

    @property
    def up(self) -> Scale:
        """The axis of counts."""
        high = max(bucket.height for bucket in self.buckets)
        return Scale(low=0, high=high, start=self.height - 30, end=60)

    @property
    def has_room(self) -> bool:
        """Whether the chosen are few enough for lines down to the axis."""
        return len(self.marks) <= MOST_STEMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One cell of a map."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    share: float
    """Of the fullest cell, 0 to 1."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityMap:
    """How often each pair of values occurs, with the chosen upon it."""

    template: ClassVar[str] = "density"
    title: str
    rule: str
    x_label: str
    y_label: str
    fields: tuple[Field, ...]
    marks: tuple[Mark, ...]
    x_ticks: Ticks
    y_ticks: Ticks

    width: ClassVar[int] = 900
    height: ClassVar[int] = 460

    @property
    def across(self) -> Scale:
        """The first axis."""
        low, high = min(f.x_low for f in self.fields), max(f.x_high for f in self.fields)
        return Scale(low=low, high=high, start=64, end=self.width - 20)

    @property
    def up(self) -> Scale:
        """The second axis."""
        low, high = min(f.y_low for f in self.fields), max(f.y_high for f in self.fields)
        return Scale(low=low, high=high, start=self.height - 34, end=16)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """One phase: where it runs, and what was chosen of it."""

    label: str
    detail: str
    segments: tuple[tuple[float, float, str], ...]
    """(start, end, text) along the run."""
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChart:
    """Phases below each other over the time of a run."""

    template: ClassVar[str] = "phases"
    title: str
    rule: str
    x_label: str
    rows: tuple[PhaseRow, ...]
    intervals: int
    x_ticks: Ticks

    width: ClassVar[int] = 900
    pitch: ClassVar[int] = 26
    """From one phase to the next."""

    @property
    def height(self) -> int:
        """As many phases as there are."""
        return self.pitch * len(self.rows) + 34

    @property
    def across(self) -> Scale:
        """The time of the run."""
        return Scale(low=0, high=self.intervals, start=150, end=self.width - 20)


Plot = Histogram | DensityMap | PhaseChart
