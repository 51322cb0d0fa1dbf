"""How well simulation points project a run, against the cycle model over the whole of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from conccl.core.errors import ExecutionError
from conccl.sampling.intervals.markers import Marker
from conccl.sampling.intervals.methods import Method
from conccl.sampling.intervals.points import Sample
from conccl.sampling.intervals.program import Ended, Program
from conccl.sampling.intervals.simpoint import cluster, project
from conccl.sampling.intervals.translate.qemu import Translated, run_with_events
from conccl.sampling.intervals.windows import COUNTERS, Action, Event

_CYCLES, _INSTRUCTIONS = COUNTERS.index("cycles"), COUNTERS.index("instructions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The cycle model over a whole run, cut in two ways."""

    totals: NDArray[np.int64]
    """[counters] of the run."""
    fixed: NDArray[np.int64]
    """[f, counters] of each interval of equal instructions."""
    fixed_vectors: sparse.csr_array
    """[f, blocks]"""
    marked: NDArray[np.int64]
    """[m, counters] of each interval between the markers that were asked for."""
    marked_vectors: sparse.csr_array
    """[m, blocks]"""
    ended: Ended


def measure_truth(program: Program, bounds: Sequence[Marker | None], /, *, interval: int) -> Truth:
    """Run the program under QEMU with the model over all of it. Every marker must be reached, in order."""
    inner = [
        Event(marker=marker, action=Action.MARK, bound=bound)
        for bound, marker in enumerate(bounds)
        if marker is not None
    ]
    run = run_with_events(program, inner, interval=interval, whole=True)
    if list(run.order) != list(range(len(inner))):
        raise ExecutionError(
            f"{len(run.order)} of {len(inner)} markers were reached, or out of turn: "
            "the program does not do the same in each run. Fix its random seeds, its time and its addresses."
        )
    assert run.vectors is not None
    marked = np.array([run.rows[number][1:] for number in (*run.order, -1)])
    return Truth(
        totals=run.rows[-1][1:],
        fixed=np.diff(run.fixed[: run.vectors.shape[0], 1:], axis=0, prepend=0),
        fixed_vectors=run.vectors,
        marked=np.diff(marked, axis=0, prepend=0),
        marked_vectors=_marked_vectors(run),
        ended=run.ended,
    )


def _marked_vectors(run: Translated) -> sparse.csr_array:
    if run.marked is not None:
        return run.marked
    assert run.vectors is not None
    return sparse.csr_array(run.vectors.sum(axis=0)[None, :])


def errors(sample: Sample, truth: Truth, /) -> dict[str, float | None]:
    """Counter -> projected over true, minus 1; None where the run has none of it.

    `cpi` is cycles per instruction. A sample without detail is taken for what somebody would project who
    simulates its points and knows how many instructions the run has.
    """
    projected = sample.projected or _simulated(sample, truth)
    totals = dict(zip(COUNTERS, truth.totals.tolist(), strict=True))
    found = {name: projected[name] / total - 1 if total else None for name, total in totals.items()}
    cpi = projected["cycles"] / projected["instructions"]
    return found | {"cpi": cpi * totals["instructions"] / totals["cycles"] - 1}


def _simulated(sample: Sample, truth: Truth) -> dict[str, float]:
    counters = truth.fixed[[point.interval for point in sample.points]]
    weights = np.array([point.weight for point in sample.points])
    rates = counters / counters[:, _INSTRUCTIONS][:, None]
    return dict(zip(COUNTERS, (weights @ rates * truth.totals[_INSTRUCTIONS]).tolist(), strict=True))


def coverage_of(sample: Sample, truth: Truth, /) -> float:
    """`coverage` of a sample's points.

    The truth must have been measured with the bounds of a DARTS sample, or the interval of a SimPoint one.
    """
    vectors = truth.marked_vectors if sample.method is Method.DARTS else truth.fixed_vectors
    return coverage(vectors, [point.interval for point in sample.points])


def coverage(vectors: sparse.csr_array, chosen: Sequence[int], /) -> float:
    """Share of all instructions that lie in blocks which the chosen intervals execute."""
    seen = np.asarray(vectors[list(chosen)].sum(axis=0)).ravel() > 0
    per_block = np.asarray(vectors.sum(axis=0)).ravel()
    return float(per_block[seen].sum() / per_block.sum())


def error_by_points(truth: Truth, /, *, most: int) -> list[tuple[int, float]]:
    """Points allowed -> error of projected cycles, by basic-block vectors of equal intervals."""
    points = project(truth.fixed_vectors)
    rows = []
    for limit in range(1, most + 1):
        grouped = cluster(points, most=limit)
        instructions = truth.fixed[:, _INSTRUCTIONS].astype(float)
        stands_for = np.bincount(grouped.labels, weights=instructions)
        chosen = truth.fixed[grouped.representatives]
        cycles = float(stands_for @ (chosen[:, _CYCLES] / chosen[:, _INSTRUCTIONS]))
        rows.append((grouped.count, cycles / float(truth.totals[_CYCLES]) - 1))
    return sorted(dict(rows).items())
