"""The page of one analysis, or of several side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from conccl.advise.analysis import Analysis
from conccl.report.page import Page, write_page
from conccl.report.runs import runs_of
from conccl.report.sections.advice import advice
from conccl.report.sections.breakdown import breakdown
from conccl.report.sections.collectives import collectives
from conccl.report.sections.contention import contention
from conccl.report.sections.headline import headline
from conccl.report.sections.health import health
from conccl.report.sections.regions import regions
from conccl.report.sections.timeline import timeline

_SECTIONS = (headline, timeline, advice, regions, breakdown, collectives, contention, health)
"""In the order of the page: the answer, the picture, what to do, then the evidence."""


def page_of(analyses: Analysis | Mapping[str, Analysis], /, *, title: str) -> Page:
    """What the page of one analysis, or of several under their labels, shows."""
    runs = runs_of(analyses)
    return Page(
        title=title,
        subtitle="; ".join(run.described for run in runs),
        sections=tuple(section(runs) for section in _SECTIONS),
    )


def write_html(
    analyses: Analysis | Mapping[str, Analysis],
    /,
    *,
    path: str | Path,
    title: str = "Overlap of computation and communication",
) -> None:
    """Write one self-contained page of one analysis, or of several under their labels, to a file."""
    write_page(page_of(analyses, title=title), path=path)
