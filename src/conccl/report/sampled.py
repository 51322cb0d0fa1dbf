"""The pages of what was sampled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from conccl.report.blocks import Section
from conccl.report.page import Page, write_page
from conccl.report.sections.chosen_kernels import chosen_kernels
from conccl.report.sections.phases import Phases, phases
from conccl.report.sections.seqpoints import seqpoints
from conccl.sampling.intervals.points import Sample
from conccl.sampling.kernels import KernelSample
from conccl.sampling.study import Study


def write_iterations_page(
    study: Study, /, *, path: str | Path, source: str, further: Sequence[Section] = ()
) -> None:
    """Write one self-contained page of the chosen iterations; ``further`` sections follow."""
    page = Page(
        title="Iterations that stand for a run",
        subtitle=f"{source}, {study.selection.iterations:,} iterations, by {study.statistic}",
        sections=(*seqpoints(study), *further),
    )
    write_page(page, path=path)


def write_kernels_page(
    sample: KernelSample,
    names: Sequence[str],
    durations_ns: npt.NDArray[np.int64],
    /,
    *,
    path: str | Path,
    source: str,
) -> None:
    """Write one self-contained page of the chosen kernels."""
    page = Page(
        title="Kernels that stand for a run",
        subtitle=f"{source}, {sample.kernels:,} kernels",
        sections=chosen_kernels(sample, names, durations_ns),
    )
    write_page(page, path=path)


def write_intervals_page(sample: Sample, /, *, path: str | Path, source: str) -> None:
    """Write one self-contained page of a program's phases and the intervals chosen from them."""
    run = Phases(
        label=source,
        phase=sample.phases,
        points={point.interval: point.weight for point in sample.points},
    )
    page = Page(
        title="Intervals that stand for a run",
        subtitle=f"{source}, {len(sample.phases):,} intervals, by {sample.method}",
        sections=(phases([run]),),
    )
    write_page(page, path=path)
