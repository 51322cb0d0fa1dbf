"""From a program to its simulation points: one entry for both methods."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np

from conccl.core.errors import InputError
from conccl.sampling.intervals.blocks import group_vectors, sample_blocks
from conccl.sampling.intervals.build import require_platform
from conccl.sampling.intervals.counters import Backend
from conccl.sampling.intervals.darts import sample_slices
from conccl.sampling.intervals.methods import Method, Translator
from conccl.sampling.intervals.parts import Parts, Timer
from conccl.sampling.intervals.points import Sample
from conccl.sampling.intervals.program import Program
from conccl.sampling.intervals.projection import fixed_numbers, grown_points, points_of, projected, shares_of
from conccl.sampling.intervals.store import Store

TRANSLATORS = {
    Method.SIMPOINT: (Translator.QEMU, Translator.VALGRIND),
    Method.DARTS: (Translator.ATTACH, Translator.QEMU),
}
"""What each method can use."""

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
    return _sample(
        parts,
        argv=program.argv,
        method=method,
        translator=translator,
        interval=interval,
        store=store,
        timer=timer,
    )


def sample_vectors(path: Path, /, *, max_clusters: int = 30, folder: Path | None = None) -> Sample:
    """Choose intervals from a file of basic-block vectors that a translator or simulator wrote."""
    _require_clusters(max_clusters)
    timer = Timer()
    with timer.stage("cluster"):
        parts = group_vectors(path, most=max_clusters)
    store = Store(folder, fingerprint=str(path.resolve()))
    return _sample(
        parts,
        argv=(),
        method=Method.SIMPOINT,
        translator=None,
        interval=round(float(np.median(parts.work))),
        store=store,
        timer=timer,
    )


def _sample(
    parts: Parts,
    /,
    *,
    argv: tuple[str, ...],
    method: Method,
    translator: Translator | None,
    interval: int,
    store: Store,
    timer: Timer,
) -> Sample:
    points = points_of(parts)
    if method is Method.SIMPOINT:
        store.write_points({point.interval: point.weight for point in points})
    else:
        store.write_points(fixed_numbers(points, interval=interval))
    return Sample(
        argv=argv,
        method=method,
        translator=translator,
        interval_instructions=interval,
        backend=parts.backend,
        points=points,
        bounds=parts.bounds,
        phases=tuple(parts.clustering.labels.tolist()),
        shares=tuple(shares_of(parts).tolist()),
        scores=parts.clustering.scores,
        projected=projected(parts),
        stages=tuple(timer.stages),
        nbytes=store.finish(),
        warnings=(*parts.warnings, *_grown(parts)),
    )


def _grown(parts: Parts) -> tuple[str, ...]:
    found = grown_points(parts)
    if not found:
        return ()
    return (
        f"intervals {', '.join(map(str, found[:5]))}: in detail they held more or fewer instructions than"
        " before. Either the program does not do the same each time (seed what it draws), or its place was"
        " lost. Sums rest on the counts per instruction; sample again to be sure.",
    )


def _checked(
    method: Method, translator: Translator | None, *, interval: int, max_clusters: int
) -> Translator:
    if interval < LEAST_INTERVAL:
        raise InputError(
            f"an interval of {interval} instructions is too short; give at least {LEAST_INTERVAL:,}."
        )
    _require_clusters(max_clusters)
    allowed = TRANSLATORS[method]
    chosen = translator or _default(method)
    if chosen not in allowed:
        raise InputError(
            f"method {method} cannot use translator {chosen}; it can use {' or '.join(allowed)}."
        )
    return chosen


def _default(method: Method) -> Translator:
    """Attaching is the quicker one, but needs an optional package."""
    if method is Method.SIMPOINT or importlib.util.find_spec("frida") is None:
        return Translator.QEMU
    return Translator.ATTACH


def _require_clusters(count: int) -> None:
    if count < 1:
        raise InputError(f"{count} clusters cannot be; give at least 1.")
