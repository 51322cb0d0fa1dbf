"""The kernels of one rank of a trace, in launch order: what sampling chooses from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conccl.core.errors import InputError
from conccl.core.timeline import Activity, Times
from conccl.traces.kineto import read_trace
from conccl.traces.rules import load_rules
from conccl.traces.sources import find_traces


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRows:
    """Names (told apart by launch and shapes too) and durations, in order of start."""

    names: tuple[str, ...]
    durations_ns: Times
    device: str | None
    rank: int


def kernel_rows(paths: Sequence[Path], /, *, rank: int | None = None) -> KernelRows:
    """The kernels of the rank asked for, or of the first one; copies and memsets are left out."""
    sources = find_traces(paths)
    if not sources.files and sources.problems:
        raise sources.problems[0]
    rules = load_rules(None)
    seen: list[int] = []
    for file in sources.files:
        for trace in read_trace(file, rules=rules):
            if rank is None or trace.rank == rank:
                timeline = trace.timeline.where(trace.timeline.activity != Activity.COPY)
                variant = timeline.columns["variant"]
                names = tuple(
                    f"{timeline.names[name]} #{kind}"
                    for name, kind in zip(timeline.name_id, variant, strict=True)
                )
                return KernelRows(
                    names=names,
                    durations_ns=np.asarray(timeline.duration_ns),
                    device=trace.device_name,
                    rank=trace.rank,
                )
            seen.append(trace.rank)
    raise InputError(f"no rank {rank} in the traces; they hold {', '.join(map(str, seen)) or 'none'}.")
