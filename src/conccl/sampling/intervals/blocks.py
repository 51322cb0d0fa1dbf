"""SimPoint's flow: a translator counts basic blocks over the whole run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from conccl.sampling.intervals.bbv import read_bbv
from conccl.sampling.intervals.methods import Translator
from conccl.sampling.intervals.parts import Parts, Timer, Unit, note_forks, require_intervals
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
        parts = group_vectors(profile.path, most=max_clusters)
    detail = None
    if detailed and translator is Translator.QEMU:
        with timer.stage("detail"):
            events = events_for(parts.clustering.representatives.tolist(), profile.bounds)
            run = qemu.run_with_events(program, events)
            detail = run.detail(events, end=len(profile.bounds) - 1)
    return replace(parts, bounds=profile.bounds, detail=detail, warnings=note_forks(profile.forks, program))


def group_vectors(path: Path, /, *, most: int) -> Parts:
    """Group the intervals of a file of basic-block vectors; it knows no markers."""
    vectors = read_bbv(path)
    return Parts(
        clustering=cluster(project(vectors), most=most),
        bounds=(None,) * (vectors.shape[0] + 1),
        work=np.asarray(vectors.sum(axis=1)).ravel().astype(float),
        unit=Unit.INSTRUCTIONS,
        detail=None,
        backend=None,
    )
