"""Reads all the traces that a user names, one after the other, and makes their ranks unique.

One file that cannot be read never loses the others: it becomes a problem beside them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conccl.core.errors import TraceError
from conccl.traces.classify import HostCopies
from conccl.traces.kineto import read_trace
from conccl.traces.rules import Rules
from conccl.traces.sources import find_traces, missing_ranks, unique_ranks
from conccl.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTraces:
    """What could be read, by rank, and what could not."""

    traces: tuple[Trace, ...]
    problems: tuple[TraceError, ...]
    warnings: tuple[str, ...]


def read_traces(
    paths: Iterable[str | Path],
    /,
    *,
    ranks: Mapping[str, int] | Sequence[int] | None = None,
    rules: Rules | None = None,
    host_copies: HostCopies = HostCopies.COPY,
) -> ReadTraces:
    """The traces that the paths name (as `find_traces` has it), by rank."""
    sources = find_traces(paths, ranks=ranks)
    problems = list(sources.problems)
    of_files: list[tuple[Trace, ...]] = []
    for file in sources.files:
        try:
            of_files.append(read_trace(file, rules=rules, host_copies=host_copies))
        except TraceError as error:
            problems.append(error)
    kept, duplicates = unique_ranks([(traces[0].rank, traces[0].path) for traces in of_files])
    settled, renumbered = _of_unique_rank([of_files[index] for index in kept])
    world_size = max((trace.world_size or 0 for trace in settled), default=0) or None
    missing = missing_ranks([trace.rank for trace in settled], world_size=world_size)
    return ReadTraces(
        traces=tuple(settled), problems=(*problems, *duplicates), warnings=(*renumbered, *missing)
    )


def _of_unique_rank(of_files: Sequence[tuple[Trace, ...]]) -> tuple[list[Trace], list[str]]:
    """One list; further GPUs of a file get the next free numbers, for no two GPUs are one rank."""
    settled = [traces[0] for traces in of_files]
    free = itertools.count(max((trace.rank for trace in settled), default=-1) + 1)
    further = [with_rank(trace, next(free)) for traces in of_files for trace in traces[1:]]
    warnings = [f"{trace.path}: its GPU {trace.device} is shown as rank {trace.rank}" for trace in further]
    return settled + further, warnings


def with_rank(trace: Trace, rank: int, /) -> Trace:
    """The same trace as another rank."""
    lanes = tuple(dataclasses.replace(lane, rank=rank) for lane in trace.timeline.lanes)
    return dataclasses.replace(trace, rank=rank, timeline=dataclasses.replace(trace.timeline, lanes=lanes))
