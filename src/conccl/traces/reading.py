"""Reads all the traces that a user names, several at a time, and makes their ranks unique.

One file that cannot be read never loses the others: it becomes a problem beside them.
"""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from conccl.core.errors import TraceError
from conccl.traces.classify import HostCopies
from conccl.traces.kineto import read_trace
from conccl.traces.rules import Rules, built_in_rules
from conccl.traces.sources import TraceFile, find_traces, missing_ranks, unique_ranks
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
    workers: int | None = None,
) -> ReadTraces:
    """The traces that the paths name (as `find_traces` has it), by rank.

    ``workers`` processes read side by side; None: as many as there are CPUs and files.
    """
    sources = find_traces(paths, ranks=ranks)
    read = partial(_read, rules=rules or built_in_rules(), host_copies=host_copies)
    traces: list[Trace] = []
    problems = list(sources.problems)
    for found in _mapped(read, sources.files, workers=workers):
        if isinstance(found, TraceError):
            problems.append(found)
        else:
            traces.extend(found)
    settled, duplicates, renumbered = _settled(traces)
    world_size = max((trace.world_size or 0 for trace in settled), default=0) or None
    missing = missing_ranks([trace.rank for trace in settled], world_size=world_size)
    return ReadTraces(
        traces=tuple(settled), problems=(*problems, *duplicates), warnings=(*renumbered, *missing)
    )


def _read(file: TraceFile, *, rules: Rules, host_copies: HostCopies) -> tuple[Trace, ...] | TraceError:
    try:
        return read_trace(file, rules=rules, host_copies=host_copies)
    except TraceError as error:
        return error


Found = tuple[Trace, ...] | TraceError


def _mapped(
    read: Callable[[TraceFile], Found], files: Sequence[TraceFile], *, workers: int | None
) -> Iterator[Found]:
    """What reading each file gives, in order; big files first would help little and order is worth more."""
    count = min(workers or len(os.sched_getaffinity(0)), len(files))
    if count <= 1:
        yield from map(read, files)
        return
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("fork")) as pool:
        yield from pool.map(read, files)


def _settled(traces: Sequence[Trace]) -> tuple[list[Trace], list[TraceError], list[str]]:
    """Traces of unique rank: further GPUs of a file get free numbers, second files of a rank are problems."""
    first_of_file = [index for index, trace in enumerate(traces) if _is_first(traces, index)]
    kept, problems = unique_ranks([(traces[index].rank, traces[index].path) for index in first_of_file])
    settled = [traces[first_of_file[index]] for index in kept]
    taken = {trace.rank for trace in settled}
    free = (rank for rank in itertools.count(max(taken, default=-1) + 1) if rank not in taken)
    paths = {trace.path for trace in settled}
    warnings = []
    for index, trace in enumerate(traces):
        if trace.path in paths and not _is_first(traces, index):
            settled.append(with_rank(trace, next(free)))
            warnings.append(f"{trace.path}: GPU {trace.device} is shown as rank {settled[-1].rank}")
    return settled, problems, warnings


def _is_first(traces: Sequence[Trace], index: int) -> bool:
    return index == 0 or traces[index - 1].path != traces[index].path


def with_rank(trace: Trace, rank: int, /) -> Trace:
    """The same trace as another rank."""
    lanes = tuple(dataclasses.replace(lane, rank=rank) for lane in trace.timeline.lanes)
    return dataclasses.replace(trace, rank=rank, timeline=dataclasses.replace(trace.timeline, lanes=lanes))
