"""JSON documents of `conccl sample`."""

from __future__ import annotations

from typing import Any

from conccl.sampling.kernels import KernelSample
from conccl.sampling.seqpoint import Projection
from conccl.sampling.study import Study


def iterations_document(study: Study, /) -> dict[str, Any]:
    """``conccl.sample.iterations/1``; a length of one dimension is a number, of more a list.

    Where the statistic is that of a simulated run, the device is the one that was simulated.
    """
    chosen = next(p for p in study.selection.projections if p.statistic == study.statistic)
    return {
        "schema": "conccl.sample.iterations/1",
        "executor": "trace" if study.simulated_on is None else "sim",
        "device": study.simulated_on,
        "statistic": study.statistic,
        "iterations": study.selection.iterations,
        "lengths": study.selection.lengths,
        "dimensions": list(study.run.names),
        "bins": study.selection.bins,
        "seqpoints": [
            {
                "length": point.length[0] if len(point.length) == 1 else list(point.length),
                "iteration": point.iteration,
                "weight": point.weight,
            }
            for point in study.selection.seqpoints
        ],
        **_projection(chosen),
        "projections": [{"statistic": p.statistic, **_projection(p)} for p in study.selection.projections],
        "baselines": [{"rule": rule.value, **_projection(p)} for rule, p in study.baselines],
    }


def kernels_document(
    sample: KernelSample, /, *, device: str | None, executor: str = "trace"
) -> dict[str, Any]:
    """``conccl.sample.kernels/1``."""
    return {
        "schema": "conccl.sample.kernels/1",
        "executor": executor,
        "device": device,
        "kernels": [
            {
                "index": point.index,
                "name": point.name,
                "weight": point.weight,
                "duration_ns": point.duration_ns,
            }
            for point in sample.points
        ],
        "of": sample.kernels,
        "projected_ns": sample.projected_ns,
        "actual_ns": sample.actual_ns,
        "error_percent": sample.error_percent,
        "interval_percent": sample.interval_percent,
    }


def _projection(projection: Projection) -> dict[str, Any]:
    return {
        "projected": projection.projected,
        "actual": projection.actual,
        "error_percent": projection.error_percent,
    }
