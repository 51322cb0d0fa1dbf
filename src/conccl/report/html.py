"""The page of one analysis, or of several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from conccl.advise.analysis import Analysis
from conccl.bench.iteration_sweep import Outcome
from conccl.report.blocks import Section
from conccl.report.page import Page, write_page
from conccl.report.runs import runs_of
from conccl.report.sections.advice import advice
from conccl.report.sections.breakdown import breakdown
from conccl.report.sections.collectives import collectives
from conccl.report.sections.contention import contention
from conccl.report.sections.headline import headline
from conccl.report.sections.health import health
from conccl.report.sections.iterations import iterations
from conccl.report.sections.regions import regions
from conccl.report.sections.strategies import Found, strategies
from conccl.report.sections.timeline import timeline
from conccl.workloads.steps import Workload

_SECTIONS = (headline, timeline, advice, regions, breakdown, collectives, contention, health)
"""In the order of the page: the answer, the picture, what to do, then the evidence."""


def page_of(
    analyses: Analysis | Mapping[str, Analysis], /, *, title: str, further: Sequence[Section] = ()
) -> Page:
    """What the page of one analysis, or of several under their labels, shows; ``further`` sections follow."""
    runs = runs_of(analyses)
    return Page(
        title=title,
        subtitle="; ".join(run.described for run in runs),
        sections=(*(section(runs) for section in _SECTIONS), *further),
    )


def write_characterization(found: Found, /, *, path: str | Path, title: str) -> None:
    """Write one self-contained page of a characterisation, or of a sweep's variations, to a file."""
    environment = found[0][1].environment
    page = Page(
        title=title,
        subtitle=f"{environment.gpus} x {environment.device}, {environment.executor}",
        sections=(strategies(found),),
    )
    write_page(page, path=path)


def write_iterations(workload: Workload, found: Sequence[Outcome], /, *, path: str | Path) -> None:
    """Write one self-contained page of a simulated iteration, or of a sweep's, to a file."""
    device = found[0].variation.device
    page = Page(
        title=f"How long an iteration takes: {workload.model.name}",
        subtitle=f"{workload.parallelism.gpus} x {device.name}, simulated",
        sections=(iterations(workload, found),),
    )
    write_page(page, path=path)


def write_html(
    analyses: Analysis | Mapping[str, Analysis],
    /,
    *,
    path: str | Path,
    title: str = "Overlap of computation and communication",
    further: Sequence[Section] = (),
) -> None:
    """Write one self-contained page of one analysis, or of several under their labels, to a file.

    ``further`` sections follow those of the analyses.
    """
    write_page(page_of(analyses, title=title, further=further), path=path)
