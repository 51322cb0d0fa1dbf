"""What a section of the page is made of: records that say what is shown, each with a partial template.

Numbers arrive as ready text beside the value that places or sorts them. Text is plain: the templates escape.
Every block states the window and the rule of its figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from typing import Any, ClassVar

from conccl.report.plots import Plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """One value on a shared axis."""

    label: str
    value: float | None
    """None: the value is not known, and only its text is shown."""
    text: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Few headline values on one axis between two named ends, so that they compare at a glance."""

    template: ClassVar[str] = "gauges"
    title: str
    rule: str
    low_label: str
    high_label: str
    rows: tuple[Gauge, ...]
    low: float = 0.0
    high: float = 1.0

    def place(self, value: float, /) -> float:
        """Where on the axis a value stands, in percent of its length; beyond the ends: at the end."""
        return 100 * min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One headline number, for each run."""

    title: str
    rule: str
    rows: tuple[Gauge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Headline numbers side by side."""

    template: ClassVar[str] = "figures"
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of a stacked bar."""

    kind: str
    """Key of the palette, or wait / transfer."""
    value: float
    text: str
    share: float
    """Of the whole bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One stacked bar."""

    label: str
    parts: tuple[Part, ...]
    text: str
    """Its total."""

    @property
    def total(self) -> float:
        """Sum of its parts."""
        return sum(part.value for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BarGroup:
    """Bars under one heading (a run)."""

    label: str
    bars: tuple[Bar, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedBars:
    """Bars of one common scale, so that their lengths compare."""

    template: ClassVar[str] = "bars"
    title: str
    rule: str
    legend: tuple[tuple[str, str], ...]
    """(kind, label), in stacking order."""
    groups: tuple[BarGroup, ...]

    @property
    def longest(self) -> float:
        """What fills the whole width."""
        return max((bar.total for group in self.groups for bar in group.bars), default=0) or 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    label: str
    numeric: bool = False
    help: str = ""
    always: bool = False
    """Shown even where no row has anything in it."""
    of_rank: bool = False
    """Tells ranks apart: not shown where every run has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What stands in one place of a table."""

    text: str
    value: float | None = None
    """What sorts a numeric column; None sorts last."""
    full: str = ""
    """The whole of a shortened name."""
    kind: str = ""
    """Palette key of a swatch before the text."""
    code: bool = False
    """A name from a trace: set in a fixed width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """Rows that can be sorted and filtered."""

    template: ClassVar[str] = "table"
    title: str
    rule: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left_out: int = 0
    """Rows that are not shown, so that the page stays bounded."""
    visible: int = 12
    """Rows that are seen before a reader asks for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dumbbell:
    """One thing measured twice: alone, and with the other side beside it."""

    label: str
    full: str
    kind: str
    """Palette key of its side."""
    alone: float
    alone_text: str
    overlapped: float
    overlapped_text: str
    text: str
    """The slowdown."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A mark on an axis."""

    value: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DumbbellGroup:
    """Dumbbells under one heading (a run)."""

    label: str
    rows: tuple[Dumbbell, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dumbbells:
    """Pairs of values on one logarithmic axis."""

    template: ClassVar[str] = "dumbbells"
    title: str
    rule: str
    groups: tuple[DumbbellGroup, ...]
    ticks: tuple[Tick, ...]
    """The first and the last are the axis' ends."""

    def place(self, value: float, /) -> float:
        """Where on the axis a value stands, in percent of its length."""
        low, high = self.ticks[0].value, self.ticks[-1].value
        return 100 * log(value / low) / log(high / low)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedBar:
    """One value from zero on, to the right or to the left."""

    label: str
    value: float | None
    """None: it has no meaning, and only its text is shown."""
    text: str
    detail: str = ""
    best: bool = False
    """The largest of its group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedBarGroup:
    """Bars under one heading."""

    label: str
    bars: tuple[SignedBar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedBars:
    """Values on one axis with a zero in it."""

    template: ClassVar[str] = "signed"
    title: str
    rule: str
    groups: tuple[SignedBarGroup, ...]
    ticks: tuple[Tick, ...]
    """The first and the last are the axis' ends; values beyond them are cut there and keep their text."""

    def place(self, value: float, /) -> float:
        """Where on the axis a value stands, in percent of its length; beyond the ends: at the end."""
        low, high = self.ticks[0].value, self.ticks[-1].value
        return 100 * min(1.0, max(0.0, (value - low) / (high - low)))

    def is_cut(self, value: float, /) -> bool:
        """Whether it lies beyond the axis."""
        return not self.ticks[0].value <= value <= self.ticks[-1].value


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a plot: points by x, each with what it says when pointed at."""

    label: str
    points: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Lines over one axis, labelled at their right ends."""

    template: ClassVar[str] = "lines"
    title: str
    rule: str
    x_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    """The first and the last are the axis' ends."""
    series: tuple[Series, ...]
    is_log: bool = False
    """The x axis is logarithmic."""
    is_log_up: bool = False
    """The y axis is."""

    width: ClassVar[int] = 900
    height: ClassVar[int] = 300
    most_right: ClassVar[int] = 300
    """Room for labels, at most."""
    top: ClassVar[int] = 12
    bottom: ClassVar[int] = 30
    between: ClassVar[int] = 16
    """Least distance of two labels."""

    @property
    def left(self) -> int:
        """Room for the labels of ticks."""
        return 18 + 7 * max(4, *(len(tick.label) for tick in self.y_ticks))

    @property
    def right(self) -> int:
        """Room for the labels of lines."""
        return min(self.most_right, 34 + 8 * max((len(series.label) for series in self.series), default=0))

    def x(self, value: float, /) -> float:
        """Where a value stands, from the left of the picture."""
        low, high = self.x_ticks[0].value, self.x_ticks[-1].value
        place = log(value / low) / log(high / low) if self.is_log else (value - low) / (high - low or 1.0)
        return self.left + place * (self.width - self.left - self.right)

    def y(self, value: float, /) -> float:
        """Where a value stands, from the top of the picture; beyond the ends: at the end."""
        low, high = self.y_ticks[0].value, self.y_ticks[-1].value
        if self.is_log_up:
            place = log(max(value, low) / low) / log(high / low)
        else:
            place = (value - low) / (high - low)
        place = min(1.0, max(0.0, place))
        return self.height - self.bottom - place * (self.height - self.top - self.bottom)

    def labels(self) -> tuple[float, ...]:
        """The height of each series' label: beside its last point, moved apart where they would touch."""
        heights = [self.y(series.points[-1][1]) for series in self.series]
        order = sorted(range(len(heights)), key=heights.__getitem__)
        for above, below in itertools.pairwise(order):
            heights[below] = max(heights[below], heights[above] + self.between)
        limit = float(self.height - self.bottom)
        for place in reversed(order):
            heights[place] = min(heights[place], limit)
            limit = heights[place] - self.between
        return tuple(heights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A sentence that stands out."""

    level: str
    """problem, warning, advice or info."""
    title: str
    text: str = ""
    cost: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Advice, warnings, problems; or why there is nothing to show."""

    template: ClassVar[str] = "notes"
    notes: tuple[Note, ...]
    title: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimelineChart:
    """Timelines under each other on one scale, drawn by the page's script from ``data``."""

    template: ClassVar[str] = "timeline"
    title: str
    rule: str
    legend: tuple[tuple[str, str], ...]
    charts: tuple[str, ...]
    """A label for each timeline."""
    notes: tuple[str, ...]
    data: Mapping[str, Any] = field(default_factory=dict)
    """What `assets/timeline.js` reads."""


Block = (
    Gauges | Figures | StackedBars | DataTable | Dumbbells | SignedBars | Lines | Notes | TimelineChart | Plot
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading of the page with what stands below it."""

    id: str
    """Its anchor: letters and hyphens."""
    title: str
    lead: str
    """One sentence: what this section answers."""
    blocks: tuple[Block, ...]
