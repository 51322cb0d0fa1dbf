"""The kernels of one rank of a trace, in launch order: what sampling chooses from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conccl.core.errors import InputError, TraceError
from conccl.core.timeline import Activity, Times
from conccl.traces.kineto import read_trace
from conccl.traces.reading import read_traces
from conccl.traces.rules import load_rules
from conccl.traces.sources import find_traces
from conccl.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRows:
    """Names and durations, in order of start."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    """What tells kernels apart: the name with the number of its launch and shapes."""
    durations_ns: Times
    device: str | None
    rank: int
    warnings: tuple[str, ...] = ()
    """What was odd about the trace, as that it breaks off."""
    problems: tuple[TraceError, ...] = ()
    """Files that came before it and could not be read."""


def kernel_rows(paths: Sequence[Path], /, *, rank: int | None = None) -> KernelRows:
    """The kernels of the rank asked for, or of the first that can be read; copies and memsets are left out.

    Ranks are numbered as `conccl.traces.reading.read_traces` does, so that second GPUs of a file have theirs.
    """
    sources = find_traces(paths)
    rules = load_rules(None)
    problems = list(sources.problems)
    for file in [file for file in sources.files if rank in (None, file.rank)]:
        try:
            traces = read_trace(file, rules=rules)
        except TraceError as error:
            problems.append(error)
            continue
        if rank is None or traces[0].rank == rank:
            return _rows(traces[0], problems)
    if problems and (rank is None or not sources.files):
        raise problems[0]
    read = read_traces(paths, rules=rules)
    for trace in read.traces:
        if trace.rank == rank:
            return _rows(trace, read.problems)
    if problems:
        raise problems[-1]
    present = ", ".join(str(trace.rank) for trace in read.traces) or "none"
    raise InputError(f"no rank {rank} in the traces; they hold {present}.")


def _rows(trace: Trace, problems: Sequence[TraceError], /) -> KernelRows:
    timeline = trace.timeline.where(trace.timeline.activity != Activity.COPY)
    variant = timeline.columns["variant"].tolist()
    names = tuple(timeline.names[name] for name in timeline.name_id.tolist())
    return KernelRows(
        names=names,
        kinds=tuple(f"{name} #{number}" for name, number in zip(names, variant, strict=True)),
        durations_ns=np.asarray(timeline.duration_ns),
        device=trace.device_name,
        rank=trace.rank,
        warnings=trace.warnings,
        problems=tuple(problems),
    )
