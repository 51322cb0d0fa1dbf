"""SimPoint's flow: a translator counts basic blocks over the whole run."""

from __future__ import annotations

import numpy as np

from conccl.sampling.intervals.bbv import read_bbv
from conccl.sampling.intervals.methods import Translator
from conccl.sampling.intervals.parts import Parts, Timer, note_forks, require_intervals
from conccl.sampling.intervals.program import Program
from conccl.sampling.intervals.simpoint import cluster, project
from conccl.sampling.intervals.store import Store
from conccl.sampling.intervals.translate import qemu, valgrind
from conccl.sampling.intervals.windows import events_for


def sample_blocks(
    program: Program,
    /,
    *,
    translator: Translator,
    interval: int,
    max_clusters: int,
    detailed: bool,
    store: Store,
    timer: Timer,
) -> Parts:
    """Choose intervals of equal instructions by their basic-block vectors."""
    profiler = {Translator.QEMU: qemu.profile_blocks, Translator.VALGRIND: valgrind.profile_blocks}[
        translator
    ]
    with timer.stage("profile") as stage:
        profile, stage.resumed = store.profile(
            lambda: profiler(program, interval=interval, keep=store.vectors)
        )
    require_intervals(len(profile.bounds) - 1, program, instructions=profile.instructions, interval=interval)
    with timer.stage("cluster"):
        vectors = read_bbv(profile.path)
        clustering = cluster(project(vectors), most=max_clusters)
        work = np.asarray(vectors.sum(axis=1)).ravel().astype(float)
    detail = None
    if detailed and translator is Translator.QEMU:
        with timer.stage("detail"):
            events = events_for(clustering.representatives.tolist(), profile.bounds)
            run = qemu.run_with_events(program, events)
            detail = run.detail(events, end=len(profile.bounds) - 1)
    return Parts(
        clustering=clustering,
        bounds=profile.bounds,
        work=work,
        detail=detail,
        backend=None,
        warnings=note_forks(profile.forks, program),
    )
