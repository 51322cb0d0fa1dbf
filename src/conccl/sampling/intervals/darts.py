"""DARTS' flow: the program runs natively, and is translated only where an interval was chosen.

After the idea of DARTS (performance-counter driven sampling using binary translators, ISPASS 2017): phases
come from cheap counters of a native run. Where its hardware counters are not to be had, calls and loop jumps
counted by the preloaded agent tell the phases apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from conccl.sampling.intervals.attach import Followed, follow, require_frida
from conccl.sampling.intervals.build import built
from conccl.sampling.intervals.counters import Backend, choose_backend
from conccl.sampling.intervals.cut import Intervals, cut
from conccl.sampling.intervals.markers import Marker, Site
from conccl.sampling.intervals.methods import Translator
from conccl.sampling.intervals.native import run_natively
from conccl.sampling.intervals.parts import Parts, Timer, note_forks, require_intervals
from conccl.sampling.intervals.program import Program
from conccl.sampling.intervals.simpoint import cluster, load_scikit_learn, project
from conccl.sampling.intervals.store import Store
from conccl.sampling.intervals.translate.qemu import Translated, find_qemu, run_with_events
from conccl.sampling.intervals.windows import Action, Detail, Event, events_for, sites_of

EXTRA_SHARE = 0.5
"""Weight of hardware counters beside executions: their variance in relation to that of the vectors."""
WARM_SHARE = 0.4
"""Of the interval before a chosen one: followed to fill caches and predictors."""
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
        clustering = cluster(_points(intervals), most=max_clusters)
    work, detail = intervals.lengths.astype(float), None
    warnings = list(note_forks(slices.forks, program))
    if detailed:
        with timer.stage("detail"):
            events = events_for(
                clustering.representatives.tolist(),
                intervals.bounds,
                warm_from=lambda interval: _inside(intervals, slices.sites, interval),
            )
            if translator is Translator.QEMU:
                work, detail, shifted = _translate(program, events, intervals, slices.sites)
                warnings += shifted
            else:
                followed = follow(program, events, slices.sites, end=intervals.count)
                detail = followed.detail
                if backend is Backend.CLOCK:  # else the lengths are instructions
                    work = _learned_work(intervals, followed)
    return Parts(
        clustering=clustering,
        bounds=intervals.bounds,
        work=work,
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


def _inside(intervals: Intervals, sites: Sequence[Site], interval: int) -> Marker | None:
    """A marker in an interval, `WARM_SHARE` of it before its end, by the site that bounds it there."""
    end = intervals.bounds[interval + 1]
    assert end is not None
    executions = int(intervals.increases[interval, sites.index(end.site)])
    ahead = min(round(WARM_SHARE * executions), end.count - 1)
    return Marker(site=end.site, count=end.count - ahead) if ahead > 0 else intervals.bounds[interval]


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


def _learned_work(intervals: Intervals, followed: Followed) -> NDArray[np.float64]:
    """Instructions of each interval, from what lay behind each site where the program was followed."""
    seen = followed.executions > 0
    typical = followed.instructions.sum() / max(followed.executions.sum(), 1)
    cost = np.where(seen, followed.instructions / np.maximum(followed.executions, 1), typical)
    work: NDArray[np.float64] = np.maximum(np.asarray(intervals.increases @ cost), 1.0)
    return work
