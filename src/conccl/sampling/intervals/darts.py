"""DARTS' flow: the program runs natively, and is translated only where an interval was chosen.

After the idea of DARTS (performance-counter driven sampling using binary translators, ISPASS 2017): phases
come from cheap counters of a native run. Where its hardware counters are not to be had, calls and loop jumps
counted by the preloaded agent tell the phases apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from conccl.sampling.intervals.attach import follow, require_frida
from conccl.sampling.intervals.build import built
from conccl.sampling.intervals.counters import Backend, choose_backend
from conccl.sampling.intervals.cut import Intervals, cut
from conccl.sampling.intervals.markers import Site
from conccl.sampling.intervals.methods import Translator
from conccl.sampling.intervals.native import run_natively
from conccl.sampling.intervals.parts import Parts, Timer, Unit, note_forks, require_intervals
from conccl.sampling.intervals.program import Program
from conccl.sampling.intervals.simpoint import Clustering, cluster, load_scikit_learn, project
from conccl.sampling.intervals.store import Store
from conccl.sampling.intervals.strata import split_heavy, without
from conccl.sampling.intervals.translate.qemu import Translated, find_qemu, run_with_events
from conccl.sampling.intervals.windows import Action, Detail, Event, events_for, sites_of

BIC_SHARE = 0.85
"""Of the range of scores; less than SimPoint's 0.9, since heavy groups are split afterwards."""
MOST_SHARE = 0.2
"""Of the run for one point to stand for."""
MOST_LOST = 0.1
"""Share of the run whose points may be missed in the second run."""
EXTRA_SHARE = 0.5
"""Weight of hardware counters beside executions: their variance in relation to that of the vectors."""
PACE_WEIGHT = 0.4
"""Of the logarithm of time over executions, beside vectors that sum to 1."""
SHIFTED = 0.001
"""Relative difference of a site's executions between two runs from which it is worth a warning."""


def sample_slices(
    program: Program,
    /,
    *,
    translator: Translator,
    interval: int,
    max_clusters: int,
    detailed: bool,
    store: Store,
    timer: Timer,
    backend: Backend | None = None,
) -> Parts:
    """Choose intervals that markers bound, by what executes in them."""
    _require(translator, detailed=detailed)
    backend = choose_backend(backend)
    with timer.stage("profile") as stage:
        load_scikit_learn()
        slices, stage.resumed = store.slices(
            lambda: run_natively(program, instructions=interval, backend=backend)
        )
    with timer.stage("cluster"):
        intervals = cut(slices)
        require_intervals(intervals.count, program, instructions=None, interval=interval)
        work, points = intervals.lengths.astype(float), _points(intervals)
        clustering = cluster(points, most=max_clusters, share=BIC_SHARE)
        clustering = split_heavy(clustering, points, work, share=MOST_SHARE, most=max_clusters)
    unit = Unit.INSTRUCTIONS if backend is Backend.HARDWARE else Unit.NANOSECONDS
    detail, warnings = None, list(note_forks(slices.forks, program))
    if detailed:
        with timer.stage("detail"):
            events = events_for(clustering.representatives.tolist(), intervals.bounds)
            if translator is Translator.QEMU:
                work, detail, shifted = _translate(program, events, intervals, slices.sites)
                unit = Unit.INSTRUCTIONS
                warnings += shifted
            else:
                detail = follow(program, events, end=intervals.count).detail
            clustering, lost = _reached(clustering, detail, points, work)
            warnings += lost
    return Parts(
        clustering=clustering,
        bounds=intervals.bounds,
        work=work,
        unit=unit,
        detail=detail,
        backend=backend,
        warnings=tuple(warnings),
    )


def _require(translator: Translator, *, detailed: bool) -> None:
    """Find out before the program runs what would be missing afterwards."""
    built("agent")
    if detailed and translator is Translator.QEMU:
        find_qemu()
        built("plugin")
    elif detailed:
        require_frida()
        built("replay")


def _points(intervals: Intervals) -> NDArray[np.float64]:
    """Projected vectors, and beside them how long an execution of a site took and what else was counted.

    Intervals that go through the same sites may still differ in what lies between them (how long an inner
    loop runs), and in how fast the machine is there; time tells both.
    """
    points = project(intervals.vectors)
    executions = np.asarray(intervals.increases.sum(axis=1)).ravel()
    pace = np.log(intervals.lengths / np.maximum(executions, 1.0))
    columns = [points, PACE_WEIGHT * (pace - np.median(pace))[:, None]]
    rates = intervals.extras / intervals.lengths[:, None]
    varied = rates[:, rates.std(axis=0) > 0]
    if varied.size:
        scaled = (varied - varied.mean(axis=0)) / varied.std(axis=0)
        columns.append(np.sqrt(EXTRA_SHARE * points.var(axis=0).sum() / varied.shape[1]) * scaled)
    return np.hstack(columns)


def _reached(
    clustering: Clustering, detail: Detail, points: NDArray[np.float64], work: NDArray[np.float64]
) -> tuple[Clustering, list[str]]:
    """The points that the second run came by; where few were missed, others take over for them."""
    missed = np.array([i for i in clustering.representatives if not detail.has(int(i))], np.int64)
    if not missed.size:
        return clustering, []
    lost = np.isin(clustering.representatives[clustering.labels], missed)
    share = float(work[lost].sum() / work.sum())
    if share > MOST_LOST:
        detail.interval(int(missed[0]))  # raises
    warning = (
        f"{len(missed)} of {clustering.count} points, which stood for {share:.1%} of the run, were not met "
        "again: the program does not do the same in each run. Their neighbours stand for them."
    )
    return without(clustering, missed, points), [warning]


def _translate(
    program: Program, events: Sequence[Event], intervals: Intervals, sites: Sequence[Site]
) -> tuple[NDArray[np.float64], Detail, list[str]]:
    """Run under QEMU, which counts instructions up to each boundary, with detail where events ask for it."""
    named = {event.bound for event in events if not event.before}
    inner = range(1, intervals.count)
    marks = [
        Event(marker=intervals.bounds[bound], action=Action.MARK, bound=bound)
        for bound in inner
        if bound not in named
    ]
    both = sorted([*events, *marks], key=lambda event: (event.bound, not event.before))
    run = run_with_events(program, both)
    work = _between(run, both, intervals)
    totals = np.asarray(intervals.increases.sum(axis=0)).ravel().tolist()
    native = dict(zip(sites, totals, strict=True))
    return work, run.detail(both, end=intervals.count), _shifts(run, both, native)


def _between(run: Translated, events: Sequence[Event], intervals: Intervals) -> NDArray[np.float64]:
    """Instructions of each interval; a boundary missed or met out of turn lies where time puts it."""
    at = np.full(intervals.count + 1, np.nan)
    at[0], at[-1] = 0, run.rows[-1][0]
    highest = 0.0
    for event, row in ((events[number], run.rows[number]) for number in sorted(set(run.rows) - {-1})):
        if not event.before and highest <= row[0] <= at[-1]:
            at[event.bound] = highest = float(row[0])
    known = np.flatnonzero(~np.isnan(at))
    elapsed = np.concatenate([[0], np.cumsum(intervals.lengths)])
    work: NDArray[np.float64] = np.maximum(np.diff(np.interp(elapsed, elapsed[known], at[known])), 1.0)
    return work


def _shifts(run: Translated, events: Sequence[Event], native: Mapping[Site, int]) -> list[str]:
    """A warning where sites executed more or less often than in the native run."""
    differing = [
        abs(executed - native[site]) / native[site]
        for site, executed in zip(sites_of(events), run.executions, strict=True)
        if abs(executed - native[site]) > SHIFTED * native[site]
    ]
    if not differing:
        return []
    return [
        f"{len(differing)} of {len(run.executions)} marker sites executed up to "
        f"{max(differing):.1%} more or less often under the translator than natively; intervals may lie "
        "that far from where they should. Fix what differs between runs (seeds, time, addresses)."
    ]
