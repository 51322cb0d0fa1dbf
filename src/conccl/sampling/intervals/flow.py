"""From a program to its simulation points: one entry for both methods."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from conccl.core.errors import InputError
from conccl.sampling.intervals.blocks import sample_blocks
from conccl.sampling.intervals.build import require_platform
from conccl.sampling.intervals.counters import Backend
from conccl.sampling.intervals.darts import sample_slices
from conccl.sampling.intervals.methods import Method, Translator
from conccl.sampling.intervals.parts import Parts, Timer
from conccl.sampling.intervals.points import Point, Sample
from conccl.sampling.intervals.program import Program
from conccl.sampling.intervals.store import Store
from conccl.sampling.intervals.windows import COUNTERS

TRANSLATORS = {
    Method.SIMPOINT: (Translator.QEMU, Translator.VALGRIND),
    Method.DARTS: (Translator.ATTACH, Translator.QEMU),
}
"""What each method can use; the first is the default."""

LEAST_INTERVAL = 1_000
_VERSION = 1
"""Of what a folder keeps for an interrupted call."""


def sample_intervals(
    program: Program,
    /,
    *,
    method: Method,
    translator: Translator | None = None,
    interval: int = 10_000_000,
    max_clusters: int = 30,
    detailed: bool = True,
    backend: Backend | None = None,
    folder: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Sample:
    """Run the program, once or twice, and choose the intervals that stand for its run.

    `interval` counts instructions. Without `detailed`, nothing is run again to cost the chosen intervals, and
    there is no projection; valgrind never gives one. With a `folder`, results are written there, and a call
    that was interrupted goes on behind the last finished stage. Raises `InputError` for a program that fails,
    uses threads or is too short.
    """
    require_platform()
    translator = _checked(method, translator, interval=interval, max_clusters=max_clusters)
    told = (
        program.fingerprint(),
        method,
        str(interval),
        str(translator is Translator.VALGRIND),
        str(_VERSION),
    )
    store = Store(folder, fingerprint=hashlib.sha256("\0".join(told).encode()).hexdigest())
    timer = Timer(progress=progress)
    if method is Method.DARTS:
        parts = sample_slices(
            program,
            translator=translator,
            interval=interval,
            max_clusters=max_clusters,
            detailed=detailed,
            store=store,
            timer=timer,
            backend=backend,
        )
    else:
        parts = sample_blocks(
            program,
            translator=translator,
            interval=interval,
            max_clusters=max_clusters,
            detailed=detailed,
            store=store,
            timer=timer,
        )
    points, projected = points_of(parts)
    store.write_points(points, interval_instructions=interval)
    return Sample(
        argv=program.argv,
        method=method,
        translator=translator,
        interval_instructions=interval,
        backend=parts.backend,
        points=points,
        bounds=parts.bounds,
        phases=tuple(parts.clustering.labels.tolist()),
        shares=tuple((parts.work / parts.work.sum()).tolist()),
        scores=parts.clustering.scores,
        projected=projected,
        stages=tuple(timer.stages),
        nbytes=store.finish(),
        warnings=parts.warnings,
    )


def _checked(
    method: Method, translator: Translator | None, *, interval: int, max_clusters: int
) -> Translator:
    if interval < LEAST_INTERVAL:
        raise InputError(
            f"an interval of {interval} instructions is too short; give at least {LEAST_INTERVAL:,}."
        )
    if max_clusters < 1:
        raise InputError(f"{max_clusters} clusters cannot be; give at least 1.")
    allowed = TRANSLATORS[method]
    chosen = translator or allowed[0]
    if chosen not in allowed:
        raise InputError(
            f"method {method} cannot use translator {chosen}; it can use {' or '.join(allowed)}."
        )
    return chosen


def points_of(parts: Parts, /) -> tuple[tuple[Point, ...], dict[str, float] | None]:
    """The points with their weights, and the counters of the whole run that they project.

    A point counts for the work of its group over its own work; its weight is the share of instructions that
    it stands for so.
    """
    labels, chosen = parts.clustering.labels, parts.clustering.representatives
    group_work = np.zeros(len(chosen))
    np.add.at(group_work, labels, parts.work)
    times = group_work / parts.work[chosen]
    counters: NDArray[np.int64] | None = None
    stands_for = group_work
    if parts.detail is not None:
        counters = np.array([parts.detail.interval(int(interval)) for interval in chosen])
        stands_for = times * counters[:, COUNTERS.index("instructions")]
    weights = stands_for / stands_for.sum()
    begins = np.concatenate([[0.0], np.cumsum(parts.work)])
    points = tuple(
        Point(
            interval=int(chosen[i]),
            cluster=int(i),
            weight=float(weights[i]),
            start=parts.bounds[chosen[i]],
            end=parts.bounds[chosen[i] + 1],
            first_instruction=round(begins[chosen[i]]),
            instructions=None if counters is None else int(counters[i, COUNTERS.index("instructions")]),
            counters=None if counters is None else dict(zip(COUNTERS, counters[i].tolist(), strict=True)),
        )
        for i in np.argsort(chosen)
    )
    if counters is None:
        return points, None
    return points, dict(zip(COUNTERS, (times @ counters).tolist(), strict=True))
