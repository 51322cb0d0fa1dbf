"""`analyze`: from trace files, or a profiler that is still in memory, to one analysis."""

from __future__ import annotations

import functools
import itertools
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import conccl
from conccl.advise.advised import Remedy
from conccl.advise.analysis import Analysis, RulesUsed
from conccl.advise.cautions import spans
from conccl.advise.drawing import ROWS_DRAWN
from conccl.advise.join import join
from conccl.advise.overlaps import RecordedOverlap
from conccl.advise.predict import COST_MODELS, CostModels
from conccl.advise.predictions import Predict
from conccl.advise.rank import RankFindings, RankOptions, analyze_rank
from conccl.advise.workers import Died, cpus, spread
from conccl.core.errors import ConcclError, InputError, TraceError
from conccl.traces.classify import HostCopies
from conccl.traces.findings import OverlapCost
from conccl.traces.kineto import read_trace
from conccl.traces.live import is_profiler, traces_of_profiler
from conccl.traces.rules import FORMAT_VERSION, load_rules
from conccl.traces.sources import Sources, TraceFile, find_traces, unique_ranks

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
    predict: Predict | None = COST_MODELS,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Analysis:
    """Where the time of these traces goes, and what overlap costs them.

    ``traces`` are files, folders, globs or archives (one, or several), or a `torch.profiler.profile` that
    has stopped. ``step`` and ``rank`` limit the analysis; ``rules`` is a file of further classification
    rules; ``host_copies`` says whether copies from and to the host are mere copies or communication;
    ``device`` names the GPU (see `conccl devices`) where the traces do not; ``predict`` gives isolated times
    where a trace holds no isolated instance (None: they stay unknown); ``progress`` is called with files done
    and in all.

    A file that cannot be read becomes one of the analysis's ``problems``; if none can, its error is raised.
    """
    if isinstance(predict, CostModels) and device is not None:
        predict = CostModels(device=device)
    given = device
    options = RankOptions(step=step, rows_drawn=rows_drawn, predict=predict)
    host_copies = _host_copies(host_copies)
    used = RulesUsed(
        version=f"{FORMAT_VERSION} of conccl {conccl.__version__}",
        source="built in" if rules is None else f"built in, after {rules}",
        host_copies=str(host_copies),
    )
    load_rules(rules)  # a bad file is told once, before any trace is read
    reader = _Reader(options=options, rules=rules, host_copies=host_copies)
    if device is not None:
        from conccl.costs.catalogue import load_device  # noqa: PLC0415 (a few ms that most calls do not need)

        device = load_device(device).name
    paths: tuple[str, ...] = ()
    problems: list[TraceError] = []
    present: list[int] = []
    if is_profiler(traces):
        findings = reader.of_profiler(traces)
    else:
        paths = _paths(traces)
        sources = find_traces(paths)
        present = [file.rank for file in sources.files]
        findings, problems = _of_sources(sources, reader, rank=rank, processes=processes, progress=progress)
    if not findings:
        raise _nothing(problems)
    return join(
        findings,
        paths=paths,
        rules=used,
        step=step,
        device=device,
        problems=tuple(problems),
        present=present if rank is not None else (),
        simulate=None if predict is None else _Simulating(device=given),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Simulating:
    """Simulates remedies; loads the simulator only where there is something to simulate."""

    device: str | None

    def __call__(
        self, costs: Sequence[OverlapCost], overlaps: Mapping[int, Sequence[RecordedOverlap]], /
    ) -> tuple[Remedy, ...]:
        if not any(each.compute.operator for of_rank in overlaps.values() for each in of_rank):
            return ()
        from conccl.advise.remedies import remedies  # noqa: PLC0415 (see above)

        return remedies(costs, overlaps, device=self.device)


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
        except ConcclError:
            raise
        except MemoryError:
            return TraceError(
                path=file.name, problem="does not fit into memory", remedy="Analyse fewer steps of it."
            )
        except Exception as error:  # a trace that we fail on must not cost the others
            return _our_failure(file, error)

    def of_profiler(self, profiler: Any, /) -> list[RankFindings]:
        """The rank of this process; its further GPUs get the next numbers."""
        traces = traces_of_profiler(profiler, rules=load_rules(self.rules), host_copies=self.host_copies)
        return _of_one_rank_each([tuple(analyze_rank(trace, self.options) for trace in traces)])


def _our_failure(file: TraceFile, error: Exception, /) -> TraceError:
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return TraceError(
        path=file.name,
        problem=f"conccl failed on it ({type(error).__name__}: {error}, at {where})",
        remedy="That is a defect of conccl: please report this line.",
    )


def _of_sources(
    sources: Sources,
    reader: _Reader,
    /,
    *,
    rank: int | None,
    processes: int | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[RankFindings], list[TraceError]]:
    likely = [file for file in sources.files if rank is None or file.rank == rank]
    read = functools.partial(_read, reader=reader, processes=processes, progress=progress)
    findings, problems = read(likely)
    if rank is not None and not problems and all(found.analysis.rank != rank for found in findings):
        # A file that tells its rank last, or holds several GPUs, may have it.
        others = [file for file in sources.files if file.rank != rank]
        findings, more = read(others) if others else ([], [])
        present = [found.analysis.rank for found in findings]
        if findings and rank not in present:
            raise InputError(f"no trace of rank {rank}; there are {spans(present)}.")
        problems += more
    kept = [found for found in findings if rank is None or found.analysis.rank == rank]
    return kept, [*sources.problems, *problems]


def _read(
    files: Sequence[TraceFile],
    /,
    *,
    reader: _Reader,
    processes: int | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[RankFindings], list[TraceError]]:
    """What these files hold, each GPU as a rank of its own, and which could not be read."""
    # The longest first: none is left over last.
    files = sorted(files, key=_packed_nbytes, reverse=True)
    done = 0

    def one_done() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(files))

    if progress is not None:
        progress(0, len(files))
    results = spread(reader, files, processes=processes or _worthwhile(files), done=one_done)
    findings: list[tuple[RankFindings, ...]] = []
    problems: list[TraceError] = []
    for file, result in zip(files, results, strict=True):
        if isinstance(result, Died):
            problems.append(_killed(file, result))
        elif isinstance(result, TraceError):
            problems.append(result)
        else:
            findings.append(result)
    kept, duplicates = unique_ranks([(f[0].analysis.rank, f[0].analysis.path) for f in findings])
    return _of_one_rank_each([findings[index] for index in kept]), [*problems, *duplicates]


def _of_one_rank_each(files: Sequence[tuple[RankFindings, ...]], /) -> list[RankFindings]:
    """Further GPUs of a file get the next free numbers, for no two lanes of work are one rank."""
    taken = [found[0].analysis.rank for found in files]
    free = itertools.count(max(taken, default=-1) + 1)
    settled = [found[0] for found in files]
    for found in files:
        settled += [each.as_rank(next(free)) for each in found[1:]]
    return settled


def _killed(file: TraceFile, died: Died, /) -> TraceError:
    return TraceError(
        path=file.name,
        problem=f"the process that read it was killed (signal {-died.exit_code}), as for want of memory",
        remedy="Analyse fewer files at a time, or one with fewer steps.",
    )


def _worthwhile(files: Sequence[TraceFile], /) -> int:
    """How many processes pay: a CPU each, and no more than there is work for."""
    work = sum(_packed_nbytes(file) for file in files) // WORTH_A_PROCESS
    return max(1, min(cpus(), len(files), work + 1))


def _packed_nbytes(file: TraceFile, /) -> int:
    """How much there is to read, as gzip; a member counts as its archive, which is read up to it."""
    try:
        size = Path(file.path).stat().st_size
    except OSError:
        return 0
    return size if file.path.lower().endswith(("gz", "tgz")) else size // PACKING


def _paths(traces: Any, /) -> tuple[str, ...]:
    if isinstance(traces, (str, Path)):
        return (str(traces),)
    try:
        paths = tuple(str(path) for path in traces if isinstance(path, (str, Path)) or _no_path(path))
    except TypeError:
        _no_path(traces)
    if not paths:
        raise InputError("no traces were given. Name files, folders or globs.")
    return paths


def _no_path(traces: Any, /) -> NoReturn:
    raise InputError(
        f"{traces!r} is no trace. Give a path, several, or a torch.profiler.profile that has stopped."
    )


def _host_copies(value: HostCopies | str, /) -> HostCopies:
    try:
        return HostCopies(value)
    except ValueError:
        raise InputError(f"host_copies is {value!r}; it must be one of {', '.join(HostCopies)}.") from None


def _nothing(problems: Sequence[TraceError], /) -> InputError:
    """Nothing could be read: the one problem, or all of them."""
    if len(problems) == 1:
        return problems[0]
    lines = "".join(f"\n  {problem}" for problem in problems)
    return InputError(f"none of the traces could be read:{lines}" if problems else "no traces were found.")
