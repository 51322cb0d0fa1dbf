"""A sample of intervals as the document that `conccl sample intervals --format json` prints."""

from __future__ import annotations

from typing import Any

from conccl.sampling.intervals.markers import Marker
from conccl.sampling.intervals.points import Point, Sample

DEVICE = "in-order core, 32 KiB L1, 1 MiB L2"
"""What the cycle model stands for (csrc/model.h)."""


def intervals_document(sample: Sample, /) -> dict[str, Any]:
    """Keys as scripts rely on them: they are added, never renamed."""
    return {
        "schema": "conccl.sample.intervals/1",
        "executor": "sim",
        "device": DEVICE,
        "program": list(sample.argv) or None,
        "method": sample.method.value,
        "translator": sample.translator.value if sample.translator else None,
        "counters": sample.backend.value if sample.backend else None,
        "interval_instructions": sample.interval_instructions,
        "intervals": len(sample.phases),
        "points": [_point(point) for point in sample.points],
        "projected": sample.projected,
        "phases": list(sample.phases),
        "shares": list(sample.shares),
        "bic": [{"clusters": clusters, "score": score} for clusters, score in sample.scores.items()],
        "stages": [
            {"name": stage.name, "wall_ns": stage.wall_ns, "cpu_ns": stage.cpu_ns, "resumed": stage.resumed}
            for stage in sample.stages
        ],
        "nbytes": sample.nbytes,
        "warnings": list(sample.warnings),
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "interval": point.interval,
        "cluster": point.cluster,
        "weight": point.weight,
        "marker": _marker(point.start),
        "end": _marker(point.end),
        "first_instruction": point.first_instruction,
        "instructions": point.instructions,
        "counters": point.counters,
    }


def _marker(marker: Marker | None) -> dict[str, Any] | None:
    if marker is None:
        return None
    return {
        "pc": marker.site.pc,
        "count": marker.count,
        "file": marker.site.path,
        "kind": marker.site.kind.value,
    }
