"""From a request to rows, as they are measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from conccl.bench.collectives import CollectiveRow, Timing, size_of
from conccl.collectives.layout import ROOTED
from conccl.integrations.collective_bench.asked import BenchRequest
from conccl.integrations.collective_bench.data import dtype_of
from conccl.integrations.collective_bench.launch import Work, started
from conccl.integrations.collective_bench.rank import Hello, Sample, Samples, measure_as

_START_S = 120.0
"""Importing PyTorch in many processes on few cores takes long."""


def measured(
    request: BenchRequest, /, *, work: Work = measure_as, context: Any = None
) -> Iterator[tuple[Hello, ...] | CollectiveRow]:
    """The ranks once they are ready, then a row for each size. Raises when a rank is in trouble."""
    silence_s = max(_START_S, 2 * request.timeout_s)
    for told in started(work, request, count=request.ranks, silence_s=silence_s, context=context):
        if isinstance(told[0], Hello):
            yield told
        else:
            yield row_of(request, told)


def row_of(request: BenchRequest, told: tuple[Samples, ...], /) -> CollectiveRow:
    """What all ranks measured of a size, as one row."""
    count = told[0].count
    return CollectiveRow(
        kind=request.kind,
        ranks=request.ranks,
        nbytes=size_of(
            request.kind, count, ranks=request.ranks, element_nbytes=dtype_of(request.dtype).itemsize
        ),
        count=count,
        dtype=request.dtype,
        redop=request.redop,
        root=request.root if request.kind in ROOTED else -1,
        out_of_place=_together([one.out_of_place for one in told]),
        in_place=_together([one.in_place for one in told]),
        how=told[0].how,
    )


def _together(samples: list[Sample | None]) -> Timing | None:
    """Each iteration's mean over the ranks, and all their wrong elements."""
    measured_ = [one for one in samples if one is not None]
    if not measured_:
        return None
    wrong = [one.nwrong for one in measured_ if one.nwrong is not None]
    return Timing(
        times_ns=tuple(
            round(statistics.fmean(times)) for times in zip(*(one.times_ns for one in measured_), strict=True)
        ),
        nwrong=sum(wrong) if len(wrong) == len(measured_) else None,
    )
