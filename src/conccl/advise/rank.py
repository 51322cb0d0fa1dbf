"""Everything that one rank's trace says by itself: what a worker hands back, small for any trace."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.advise.analysis import RankAnalysis
from conccl.advise.calls import call_rows, calls_of
from conccl.advise.drawing import ROWS_DRAWN, draw
from conccl.advise.isolation import Isolation, isolation
from conccl.advise.kernels import candidates, is_kernel, shared_stream_ns, unclassified
from conccl.advise.overlaps import RecordedOverlap, recorded_overlaps
from conccl.advise.predictions import Predict
from conccl.advise.view import View, view_of
from conccl.core.timeline import Ids, Mask, Times
from conccl.traces.breakdown import communicates
from conccl.traces.contention import slowdowns
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
from conccl.traces.host_rows import COMMUNICATION_PREFIXES
from conccl.traces.labels import labelled_work
from conccl.traces.matching import RankCalls
from conccl.traces.regions import IsolatedWork, isolated_work, overlapped_regions
from conccl.traces.trace import Trace

CONTENTION_KEPT = 200
WINDOWS_KEPT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions:
    """What of a trace is looked at, and how."""

    step: int | None = None
    """Only the work of this step (the number that the profiler gave it)."""
    rows_drawn: int = ROWS_DRAWN
    predict: Predict | None = None
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
    overlaps: tuple[RecordedOverlap, ...]
    """The costliest regions and exposures, as simulating them needs them."""
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
            overlaps=tuple(dataclasses.replace(each, rank=rank) for each in self.overlaps),
        )


def analyze_rank(trace: Trace, options: RankOptions, /) -> RankFindings:
    """All that this trace says by itself."""
    view = view_of(trace, step=options.step)
    timeline, every, rank = view.timeline, view.every, trace.rank
    waiting = _waiting(trace)
    found = slowdowns(timeline, every=every, rank=rank, nbytes=_nbytes(trace), waiting=waiting)
    alone = isolation(trace, found, every=every, waiting=waiting, predict=options.predict)
    work = isolated_work(timeline, rate=alone.rate, doubt=alone.doubt)
    regions = overlapped_regions(
        timeline, every=every, work=work, rank=rank, window_ns=(view.start_ns, view.end_ns)
    )
    exposed = exposed_communication(
        timeline,
        every=every,
        rank=rank,
        origin_ns=view.start_ns,
        among=view.rows,
        coverable=_coverable(view),
    )
    kernels = is_kernel(timeline) & view.rows
    rows = call_rows(view)
    named_regions = tuple(dataclasses.replace(r, step=_number(trace, r.step)) for r in regions)
    named_exposed = tuple(dataclasses.replace(e, step=_number(trace, e.step)) for e in exposed.findings)
    return RankFindings(
        analysis=_analysis(view, work=work, kernels=kernels, rows_drawn=options.rows_drawn, alone=alone),
        world_size=trace.world_size,
        calls=calls_of(view, rows),
        call_exposed_ns=exposed.exposed_ns[rows],
        call_exposure=exposed.finding[rows],
        contention=alone.kernels[:CONTENTION_KEPT],
        regions=named_regions,
        exposed=named_exposed,
        overlaps=()
        if options.predict is None
        else recorded_overlaps(view, regions=named_regions, exposed=named_exposed, alone_ns=found.alone_ns),
        unclassified=unclassified(timeline, kernels),
        candidates=candidates(timeline, kernels),
        shared_stream_ns=shared_stream_ns(view),
    )


def _analysis(
    view: View,
    /,
    *,
    work: IsolatedWork,
    kernels: Mask,
    rows_drawn: int,
    alone: Isolation,
) -> RankAnalysis:
    """What a reader sees of the rank."""
    trace, timeline = view.trace, view.timeline
    whole = work.within_all(np.array([view.start_ns]), np.array([view.end_ns]))
    unattributed = timeline.columns["step"] < 0 if trace.steps else np.zeros(len(timeline), dtype=np.bool_)
    drawing = draw(
        timeline,
        every=view.every,
        windows=view.windows,
        steps=trace.steps,
        chosen=view.chosen,
        keep=rows_drawn,
    )
    return RankAnalysis(
        rank=trace.rank,
        path=trace.path,
        rank_source=str(trace.rank_source),
        device_name=trace.device_name,
        window=view.text,
        split=view.split,
        overlap=whole.estimate(),
        steps=_steps(view, work=work),
        windows=_named_windows(view, work=work),
        unattributed_ns=int(timeline.duration_ns[unattributed].sum()),
        wait_ns=None,
        transfer_ns=None,
        kernels=int(kernels.sum()),
        kernel_ns=int(timeline.duration_ns[kernels].sum()),
        health=trace.health,
        drawing=drawing,
        contention_left_out=max(0, len(alone.kernels) - CONTENTION_KEPT),
        predictions=alone.used,
        warnings=trace.warnings,
    )


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


def _steps(view: View, /, *, work: IsolatedWork) -> tuple[StepSplit, ...]:
    trace, windows = view.trace, view.windows
    if not windows:
        return ()
    start = np.array([window.start_ns for window in windows], dtype=np.int64)
    end = np.array([window.end_ns for window in windows], dtype=np.int64)
    return tuple(
        StepSplit(
            number=trace.steps[window.step].number,
            name=trace.steps[window.step].name,
            start_ns=window.start_ns - view.start_ns,
            split=window.split,
            overlap=done.estimate(),
            wait_ns=None,
            transfer_ns=None,
        )
        for window, done in zip(windows, work.within(start, end), strict=True)
    )


def _coverable(view: View, /) -> npt.NDArray[np.float64]:
    """For each row, how much of exposed time there is compute to cover: of its step, else of the trace."""

    def share(found: TimeSplit) -> float:
        return min(1.0, found.compute_only_ns / max(1, found.communication_only_ns))

    step = view.timeline.columns["step"]
    last = max((window.step for window in view.windows), default=-1)
    shares = np.full(last + 2, share(view.split))
    for window in view.windows:
        shares[window.step] = share(window.split)
    return shares[np.where(step < len(shares) - 1, step, -1)]


def _named_windows(view: View, /, *, work: IsolatedWork) -> tuple[WindowOverlap, ...]:
    """Stretches that the user named, where both sides ran in them: those with most of that."""
    annotations = view.trace.annotations
    labels = labelled_work(annotations, view.timeline)
    inside = (labels.start_ns >= view.start_ns) & (labels.end_ns <= view.end_ns)
    name, start, end = labels.name_id[inside].astype(np.intp), labels.start_ns[inside], labels.end_ns[inside]
    if not len(name):
        return ()
    done = work.within_groups(name, start, end)
    names = annotations.names
    found: list[WindowOverlap] = []
    for each in sorted(range(len(done)), key=lambda each: -done[each].both):
        if len(found) == WINDOWS_KEPT or done[each].both < 1:
            break
        if names[each].startswith(_OF_THE_PROFILER):
            continue
        mine = name == each
        found.append(
            WindowOverlap(
                name=names[each],
                count=int(mine.sum()),
                start_ns=int(start[mine].min()) - view.start_ns,
                span_ns=int((end - start)[mine].sum()),
                overlap=done[each].estimate(),
            )
        )
    return tuple(found)


_OF_THE_PROFILER = (*COMMUNICATION_PREFIXES, "ProfilerStep#", "Optimizer.")
"""Labels that PyTorch itself puts: steps are told elsewhere, collectives too."""


def _number(trace: Trace, step: int | None, /) -> int | None:
    return None if step is None else trace.steps[step].number
