"""`analyze`: from trace files, or a profiler that is still in memory, to one analysis."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import conccl
from conccl.advise.analysis import Analysis, RulesUsed
from conccl.advise.drawing import ROWS_DRAWN
from conccl.advise.join import join
from conccl.advise.rank import IsolatedTimes, RankFindings, RankOptions, analyze_rank
from conccl.advise.workers import Died, spread
from conccl.core.errors import InputError, TraceError
from conccl.traces.classify import HostCopies
from conccl.traces.kineto import read_trace
from conccl.traces.rules import FORMAT_VERSION, load_rules
from conccl.traces.sources import TraceFile, find_traces, unique_ranks

Paths = str | Path | Iterable[str | Path]

WORTH_A_PROCESS = 1 << 20
"""Packed bytes to read from which on starting another process pays."""

PACKING = 12
"""Bytes of JSON in a byte of its gzip: 10 to 15 in profiler traces."""


def analyze(
    traces: Any,
    /,
    *,
    step: int | None = None,
    rank: int | None = None,
    rules: str | Path | None = None,
    host_copies: HostCopies | str = HostCopies.COPY,
    device: str | None = None,
    rows_drawn: int = ROWS_DRAWN,
    predict: IsolatedTimes | None = None,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Analysis:
    """Where the time of these traces goes, and what overlap costs them.

    ``traces`` are files, folders, globs or archives (one, or several), or a `torch.profiler.profile` that has
    stopped. ``step`` and ``rank`` limit the analysis; ``rules`` is a file of further classification rules;
    ``host_copies`` says whether copies from and to the host are mere copies or communication; ``device`` names
    the GPU where the traces do not; ``progress`` is called with files done and files in all.

    A file that cannot be read becomes one of the analysis's ``problems``; if none can, its error is raised.
    """
    options = RankOptions(step=step, rows_drawn=rows_drawn, predict=predict)
    host_copies = _host_copies(host_copies)
    used = RulesUsed(
        version=f"{FORMAT_VERSION} of conccl {conccl.__version__}",
        source="built in" if rules is None else f"built in, after {rules}",
        host_copies=str(host_copies),
    )
    load_rules(rules)  # a bad file is told once, before any trace is read
    reader = _Reader(options=options, rules=rules, host_copies=host_copies)
    if _is_profiler(traces):
        paths: tuple[str, ...] = ()
        findings, problems = reader.of_profiler(traces), []
    else:
        paths = _paths(traces)
        findings, problems = _of_files(paths, reader, rank=rank, processes=processes, progress=progress)
    if not findings:
        raise _nothing(problems)
    return join(
        findings, paths=paths, rules=used, step=step, device=device, problems=tuple(problems)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads and analyses one file; goes to the workers as it is."""

    options: RankOptions
    rules: str | Path | None
    host_copies: HostCopies

    def __call__(self, file: TraceFile, /) -> tuple[RankFindings, ...] | TraceError:
        try:
            traces = read_trace(file, rules=load_rules(self.rules), host_copies=self.host_copies)
            return tuple(analyze_rank(trace, self.options) for trace in traces)
        except TraceError as error:
            return error
        except MemoryError:
            return TraceError(
                path=file.name, problem="does not fit into memory", remedy="Analyse fewer steps of it."
            )

    def of_profiler(self, profiler: Any, /) -> list[RankFindings]:
        from conccl.traces.live import traces_of_profiler

        traces = traces_of_profiler(profiler, rules=load_rules(self.rules), host_copies=self.host_copies)
        return [analyze_rank(trace, self.options) for trace in traces]
