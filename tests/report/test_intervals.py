"""How simulation points look on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from conccl.report.intervals import render_intervals
from conccl.sampling.intervals.markers import Marker, Site, SiteKind
from conccl.sampling.intervals.methods import Method, Translator
from conccl.sampling.intervals.points import Point, Sample, Stage
from conccl.sampling.intervals.windows import COUNTERS

MARKER = Marker(site=Site(path="/usr/bin/\x1b[31mred", pc=0x1234, kind=SiteKind.CALL), count=5_000)


def point(*, interval: int, cluster: int, weight: float, start: Marker | None = None) -> Point:
    return Point(
        interval=interval, cluster=cluster, weight=weight, start=start, end=None, first_instruction=None,
        instructions=7_000_000, counters=dict.fromkeys(COUNTERS, 9_000_000),
    )  # fmt: skip


def sample(**changes: object) -> Sample:
    fields: dict[str, object] = {
        "argv": ("/usr/bin/\x1b[31mred",),
        "method": Method.DARTS,
        "translator": Translator.ATTACH,
        "interval_instructions": 10_000_000,
        "backend": None,
        "points": (
            point(interval=0, cluster=0, weight=0.25),
            point(interval=2, cluster=1, weight=0.75, start=MARKER),
        ),
        "bounds": (None,) * 4,
        "phases": (0, 1, 1),
        "shares": (0.25, 0.25, 0.5),
        "scores": {1: -1.0},
        "projected": dict.fromkeys(COUNTERS, 123_456.0),
        "stages": (Stage(name="profile", wall_ns=10**9, cpu_ns=1, resumed=True),),
        "nbytes": 99,
        "warnings": (),
    }
    return Sample(**{**fields, **changes})  # type: ignore[arg-type]


def rendered(given: Sample) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(render_intervals(given))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_the_run_is_drawn_as_long_as_each_interval_lasted() -> None:
    assert "a" * 18 + "b" * 54 in rendered(sample())


def test_points_name_their_places_and_names_stay_inert() -> None:
    text = rendered(sample())
    assert "the start" in text
    assert "+0x1234 x 5,000" in text
    assert "9,000,000" in text
    assert "profile kept" in text
    assert "\x1b" not in text


def test_what_is_not_known_takes_no_column() -> None:
    points = (
        Point(
            interval=1, cluster=0, weight=1.0, start=None, end=None, first_instruction=None,
            instructions=None, counters=None,
        ),
    )  # fmt: skip
    text = rendered(sample(argv=(), points=points, phases=(0, 0, 0), projected=None))
    assert "begins at" not in text
    assert "cycles" not in text
    assert "intervals stand for the run\n" in text
