"""Everything that one rank's trace says by itself: what a worker hands back, small for any trace."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.advise.analysis import RankAnalysis
from conccl.advise.drawing import ROWS_DRAWN, draw
from conccl.core.errors import TraceError
from conccl.core.timeline import Activity, Ids, Mask, Timeline, Times
from conccl.traces.breakdown import Sides, StepWindow, communicates, sides_of, split, step_windows
from conccl.traces.contention import Slowdowns, slowdowns
from conccl.traces.exposed import exposed_communication
from conccl.traces.findings import (
    Contention,
    ExposedCommunication,
    OverlappedRegion,
    StepSplit,
    TimeSplit,
    Unclassified,
    WindowOverlap,
)
from conccl.traces.labels import labelled_work
from conccl.traces.matching import CallLabel, RankCalls
from conccl.traces.regions import IsolatedWork, isolated_work, overlapped_regions
from conccl.traces.trace import Trace

IsolatedTimes = Callable[[Trace], Times]
"""Predicts what each row of a trace takes alone, in ns; -1 where it cannot. Must pickle."""

CONTENTION_KEPT = 200
UNCLASSIFIED_KEPT = 50
WINDOWS_KEPT = 32
CANDIDATES_KEPT = 5

SLOWEST = 20.0
"""A predicted slowdown beyond this says that the prediction is wrong, not that contention is strong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions:
    """What of a trace is looked at, and how."""

    step: int | None = None
    """Only the work of this step (the number that the profiler gave it)."""
    rows_drawn: int = ROWS_DRAWN
    predict: IsolatedTimes | None = None
    """For kernels without an isolated instance in the trace; None: they stay unknown."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankFindings:
    """One rank by itself; waiting and transfer are left open until ranks are joined."""

    analysis: RankAnalysis
    world_size: int | None
    calls: RankCalls
    """``step`` holds places in ``analysis.steps``."""
    call_exposed_ns: Times
    """How much of each call no compute covers."""
    call_exposure: Ids
    """Which entry of ``exposed`` each call is part of; -1: none."""
    contention: tuple[Contention, ...]
    regions: tuple[OverlappedRegion, ...]
    exposed: tuple[ExposedCommunication, ...]
    unclassified: tuple[Unclassified, ...]
    candidates: tuple[str, ...]
    """Where nothing communicates: the kernels most likely to, likeliest first."""
    shared_stream_ns: int
    """Exposed communication on streams that also compute."""

    def as_rank(self, rank: int, /) -> RankFindings:
        """The same under another number."""
        return dataclasses.replace(
            self,
            analysis=dataclasses.replace(self.analysis, rank=rank),
            calls=dataclasses.replace(self.calls, rank=rank),
            contention=tuple(dataclasses.replace(each, rank=rank) for each in self.contention),
            regions=tuple(dataclasses.replace(each, rank=rank) for each in self.regions),
            exposed=tuple(dataclasses.replace(each, rank=rank) for each in self.exposed),
        )


def analyze_rank(trace: Trace, options: RankOptions, /) -> RankFindings:
    """All that this trace says by itself."""
    timeline = trace.timeline
    every = sides_of(timeline)
    windows = step_windows(timeline, every=every)
    chosen = _chosen(trace, windows, step=options.step)
    rows = np.ones(len(timeline), dtype=np.bool_)
    if chosen is not None:
        rows = timeline.columns["step"] == chosen.step
        windows = (chosen,)
    window_ns = _window_of(timeline, chosen)
    waiting = _waiting(trace)
    found = slowdowns(timeline, every=every, rank=trace.rank, nbytes=_nbytes(trace), waiting=waiting)
    work = _isolated_work(trace, found, every=every, waiting=waiting, predict=options.predict)
    exposed = exposed_communication(
        timeline,
        every=every,
        rank=trace.rank,
        origin_ns=window_ns[0],
        among=rows,
        coverable=_coverable(timeline, windows),
    )
    regions = overlapped_regions(timeline, every=every, work=work, rank=trace.rank, window_ns=window_ns)
    is_kernel = _is_kernel(timeline)
    call_rows = _call_rows(timeline, rows)
    calls = _calls(trace, call_rows, windows=windows)
    drawing = draw(
        timeline,
        every=every,
        windows=windows,
        steps=trace.steps,
        chosen=chosen,
        keep=options.rows_drawn,
    )
    analysis = RankAnalysis(
        rank=trace.rank,
        path=trace.path,
        rank_source=str(trace.rank_source),
        device_name=trace.device_name,
        window=_window_text(trace, chosen),
        split=split(timeline) if chosen is None else chosen.split,
        overlap=work.within_all(*_arrays(window_ns)).estimate(),
        steps=_steps(trace, windows, work=work, origin_ns=window_ns[0]),
        windows=_named_windows(trace, work=work, window_ns=window_ns),
        unattributed_ns=int(timeline.duration_ns[timeline.columns["step"] < 0].sum()) if trace.steps else 0,
        wait_ns=None,
        transfer_ns=None,
        kernels=int((is_kernel & rows).sum()),
        kernel_ns=int(timeline.duration_ns[is_kernel & rows].sum()),
        health=trace.health,
        drawing=drawing,
        warnings=trace.warnings,
    )
    return RankFindings(
        analysis=analysis,
        world_size=trace.world_size,
        calls=calls,
        call_exposed_ns=exposed.exposed_ns[call_rows],
        call_exposure=exposed.finding[call_rows],
        contention=found.kernels[:CONTENTION_KEPT],
        regions=tuple(dataclasses.replace(r, step=_number(trace, r.step)) for r in regions),
        exposed=tuple(dataclasses.replace(e, step=_number(trace, e.step)) for e in exposed.findings),
        unclassified=_unclassified(timeline, is_kernel & rows),
        candidates=() if communicates(timeline.activity).any() else _candidates(timeline, is_kernel),
        shared_stream_ns=_shared_stream_ns(timeline, rows, every=every),
    )


def _chosen(trace: Trace, windows: Sequence[StepWindow], /, *, step: int | None) -> StepWindow | None:
    if step is None:
        return None
    for window in windows:
        if trace.steps[window.step].number == step:
            return window
    numbers = ", ".join(str(trace.steps[window.step].number) for window in windows) or "none"
    raise TraceError(
        path=trace.path,
        problem=f"has no GPU work of step {step}",
        remedy=f"Its steps with GPU work are: {numbers}.",
    )


def _window_of(timeline: Timeline, chosen: StepWindow | None, /) -> tuple[int, int]:
    if chosen is not None:
        return chosen.start_ns, chosen.end_ns
    if not len(timeline):
        return 0, 0
    return int(timeline.start_ns.min()), int(timeline.end_ns.max())


def _window_text(trace: Trace, chosen: StepWindow | None, /) -> str:
    if chosen is None:
        return "all GPU rows of the trace, from the first start to the last end"
    name = trace.steps[chosen.step].name
    return f"the GPU rows that {name} launched, from their first start to their last end"


def _arrays(window_ns: tuple[int, int], /) -> tuple[Times, Times]:
    return np.array(window_ns[:1], dtype=np.int64), np.array(window_ns[1:], dtype=np.int64)


def _is_kernel(timeline: Timeline, /) -> Mask:
    """Rows that are kernels: they have threads, or (old traces) neither bytes nor a copy's class."""
    threads, nbytes = timeline.columns["threads"], timeline.columns["nbytes"]
    kernels: Mask = (threads > 0) | ((timeline.activity != Activity.COPY) & (nbytes == 0))
    return kernels


def _waiting(trace: Trace, /) -> Mask:
    """Communication kernels that wait for other ranks; copies, and kernels of a lone rank, do not."""
    timeline = trace.timeline
    kernels: Mask = communicates(timeline.activity) & (timeline.columns["nbytes"] == 0)
    peers: Mask = timeline.columns["collective"] >= 0
    if trace.world_size is not None:
        peers = np.full(len(timeline), trace.world_size > 1)
    return kernels & peers


def _nbytes(trace: Trace, /) -> Times:
    """Bytes that each row moves: those of copies, and those that metadata state of collectives."""
    sizes = np.array([call.nbytes or 0 for call in trace.collectives] + [0], dtype=np.int64)
    columns = trace.timeline.columns
    nbytes: Times = np.where(columns["collective"] >= 0, sizes[columns["collective"]], columns["nbytes"])
    return nbytes


def _isolated_work(
    trace: Trace,
    found: Slowdowns,
    /,
    *,
    every: Sides,
    waiting: Mask,
    predict: IsolatedTimes | None,
) -> IsolatedWork:
    """What got done; a collective that waits for peers is not taken to be faster under compute."""
    rate = np.where(waiting, np.minimum(found.rate, 1.0), found.rate)
    if predict is None:
        return isolated_work(trace.timeline, rate=rate)
    predicted = _predicted_rates(trace.timeline, predict(trace), every=every)
    fills = ~np.isfinite(rate) & np.isfinite(predicted)
    return isolated_work(trace.timeline, rate=np.where(fills, predicted, rate), predicted=fills)


def _predicted_rates(timeline: Timeline, alone_ns: Times, /, *, every: Sides) -> npt.NDArray[np.float64]:
    """1/s from predicted isolated times: the line of `conccl.traces.contention`, solved for 1/s."""
    duration = timeline.duration_ns.astype(np.float64)
    under = np.where(
        communicates(timeline.activity),
        every.compute.coverage(timeline.start_ns, timeline.end_ns),
        every.communication.coverage(timeline.start_ns, timeline.end_ns),
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        share = under / duration
        rate = 1 - (1 - alone_ns / duration) / share
    known = (alone_ns >= 0) & (share > 0) & (timeline.activity != Activity.FUSED)
    return np.where(known, np.clip(rate, 1 / SLOWEST, 1.0), np.nan)


def _steps(
    trace: Trace, windows: Sequence[StepWindow], /, *, work: IsolatedWork, origin_ns: int
) -> tuple[StepSplit, ...]:
    if not windows:
        return ()
    start = np.array([window.start_ns for window in windows], dtype=np.int64)
    end = np.array([window.end_ns for window in windows], dtype=np.int64)
    return tuple(
        StepSplit(
            number=trace.steps[window.step].number,
            name=trace.steps[window.step].name,
            start_ns=window.start_ns - origin_ns,
            split=window.split,
            overlap=done.estimate(),
            wait_ns=None,
            transfer_ns=None,
        )
        for window, done in zip(windows, work.within(start, end), strict=True)
    )


def _coverable(timeline: Timeline, windows: Sequence[StepWindow], /) -> npt.NDArray[np.float64]:
    """For each row, how much of exposed time there is compute to cover: of its step, else of the trace."""

    def share(found: TimeSplit) -> float:
        return min(1.0, found.compute_only_ns / max(1, found.communication_only_ns))

    step = timeline.columns["step"]
    shares = np.full(max((window.step for window in windows), default=-1) + 2, share(split(timeline)))
    for window in windows:
        shares[window.step] = share(window.split)
    return shares[np.where(step < len(shares) - 1, step, -1)]


def _named_windows(
    trace: Trace, /, *, work: IsolatedWork, window_ns: tuple[int, int]
) -> tuple[WindowOverlap, ...]:
    """Stretches that the user named, where both sides ran in them: those with most of that."""
    labels = labelled_work(trace.annotations, trace.timeline)
    inside = (labels.start_ns >= window_ns[0]) & (labels.end_ns <= window_ns[1])
    name, start, end = labels.name_id[inside].astype(np.intp), labels.start_ns[inside], labels.end_ns[inside]
    if not len(name):
        return ()
    done = work.within_groups(name, start, end)
    names = trace.annotations.names
    found: list[WindowOverlap] = []
    for each in sorted(range(len(done)), key=lambda each: -done[each].both):
        if len(found) == WINDOWS_KEPT or done[each].both < 1:
            break
        if _OF_THE_PROFILER.match(names[each]):
            continue
        mine = name == each
        found.append(
            WindowOverlap(
                name=names[each],
                count=int(mine.sum()),
                start_ns=int(start[mine].min()) - window_ns[0],
                span_ns=int((end - start)[mine].sum()),
                overlap=done[each].estimate(),
            )
        )
    return tuple(found)


_OF_THE_PROFILER = re.compile(r"ProfilerStep#|nccl:|Optimizer\.")
"""Labels that PyTorch itself puts: steps are told elsewhere, collectives too."""


def _number(trace: Trace, step: int | None, /) -> int | None:
    return None if step is None else trace.steps[step].number


def _unclassified(timeline: Timeline, kernels: Mask, /) -> tuple[Unclassified, ...]:
    unknown = kernels & (timeline.columns["rule"] < 0)
    total = int(timeline.duration_ns[kernels].sum())
    summed = np.bincount(timeline.name_id[unknown], weights=timeline.duration_ns[unknown])
    counts = np.bincount(timeline.name_id[unknown])
    most = np.argsort(-summed, kind="stable")[: min(UNCLASSIFIED_KEPT, np.count_nonzero(counts))]
    return tuple(
        Unclassified(
            name=timeline.names[name],
            count=int(counts[name]),
            duration_ns=int(summed[name]),
            share=float(summed[name] / total) if total else 0.0,
        )
        for name in most
    )


def _shared_stream_ns(timeline: Timeline, rows: Mask, /, *, every: Sides) -> int:
    """Exposed communication on streams that also run compute kernels."""
    computing = np.unique(timeline.lane_id[timeline.activity == Activity.COMPUTE])
    chosen = rows & (timeline.activity == Activity.COMMUNICATION) & np.isin(timeline.lane_id, computing)
    start, end = timeline.start_ns[chosen], timeline.end_ns[chosen]
    return int((end - start - every.compute.coverage(start, end)).sum())


_LIKE_COMMUNICATION = re.compile(
    r"comm|peer|p2p|gather|scatter|allreduce|all_reduce|reduce.?scatter|a2a|all.?to.?all|dispatch|combine"
    r"|shmem|symm|signal|barrier|ring|nvl|rdma|ibgda|broadcast|send|recv|exchange",
    re.IGNORECASE,
)
_MADE_BY_PYTORCH = re.compile(r"at::native|cub::|thrust::|cutlass|cublas|gemm|embedding|index", re.IGNORECASE)


def _candidates(timeline: Timeline, kernels: Mask, /) -> tuple[str, ...]:
    """By name first, then by whether any rule knows them, then by time."""
    summed = np.bincount(
        timeline.name_id[kernels], weights=timeline.duration_ns[kernels], minlength=len(timeline.names)
    )
    unknown = np.zeros(len(timeline.names), dtype=np.bool_)
    unknown[timeline.name_id[kernels & (timeline.columns["rule"] < 0)]] = True

    def likelihood(name: int) -> tuple[bool, bool, float]:
        text = timeline.names[name]
        like = bool(_LIKE_COMMUNICATION.search(text)) and not _MADE_BY_PYTORCH.search(text)
        return like, bool(unknown[name]), float(summed[name])

    ranked = sorted(np.flatnonzero(summed > 0).tolist(), key=likelihood, reverse=True)
    return tuple(timeline.names[name] for name in ranked[:CANDIDATES_KEPT])


def _call_rows(timeline: Timeline, rows: Mask, /) -> npt.NDArray[np.intp]:
    """The communication kernels among these rows."""
    kernels = (timeline.activity == Activity.COMMUNICATION) & (timeline.columns["nbytes"] == 0)
    return np.flatnonzero(rows & kernels)


def _calls(trace: Trace, chosen: npt.NDArray[np.intp], /, *, windows: Sequence[StepWindow]) -> RankCalls:
    """All that matching needs of these rows."""
    timeline = trace.timeline
    collective = timeline.columns["collective"][chosen]
    pairs = list(zip(timeline.name_id[chosen].tolist(), collective.tolist(), strict=True))
    labels: dict[CallLabel, int] = {}
    known: dict[tuple[int, int], int] = {}
    for pair in pairs:
        if pair not in known:
            known[pair] = labels.setdefault(_label(trace, *pair), len(labels))
    sequence = np.array(
        [-1 if call.sequence is None else call.sequence for call in trace.collectives] + [-1], dtype=np.int64
    )
    place = np.full(len(trace.steps) + 1, -1, dtype=np.int32)
    place[[window.step for window in windows]] = np.arange(len(windows))
    return RankCalls(
        rank=trace.rank,
        start_ns=timeline.start_ns[chosen],
        end_ns=timeline.end_ns[chosen],
        label=np.array([known[pair] for pair in pairs], dtype=np.int32),
        labels=tuple(labels),
        sequence=sequence[collective],
        ctas=timeline.columns["ctas"][chosen],
        step=place[timeline.columns["step"][chosen]],
    )


def _label(trace: Trace, name: int, collective: int, /) -> CallLabel:
    text = trace.timeline.names[name]
    if collective < 0:
        return CallLabel(name=text, kind=None, group=None, group_ranks=None, group_size=None, nbytes=None)
    call = trace.collectives[collective]
    return CallLabel(
        name=text,
        kind=call.kind,
        group=call.group,
        group_ranks=call.group_ranks,
        group_size=call.group_size,
        nbytes=call.nbytes,
    )
