"""What tuning found, as the JSON document of ``conccl tune gemms``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from conccl.tune.gemms.choice import Choice
from conccl.tune.gemms.search import Tuned

SCHEMA = "conccl.tune-gemms/1"


def to_document(found: Sequence[Tuned], /, *, device: str, executor: str) -> dict[str, Any]:
    """Times in ns; speedups are times over the best's; ``part`` n: the kernel tuned on 1/n of the device."""
    return {
        "schema": SCHEMA,
        "executor": executor,
        "device": device,
        "sets": [_row(one) for one in found],
        "geomean_over_sequential": statistics.geometric_mean(
            one.sequential_ns / one.best_ns for one in found
        ),
        "geomean_over_default": statistics.geometric_mean(one.default_ns / one.best_ns for one in found),
        "measurements": sum(one.measurements for one in found),
    }


def _row(one: Tuned) -> dict[str, Any]:
    return {
        "name": one.gemms.name,
        "source": one.gemms.source,
        "gemms": [[op.m, op.n, op.k] for op in one.gemms.gemms],
        "sequential_ns": round(one.sequential_ns),
        "default_ns": round(one.default_ns),
        "best_ns": round(one.best_ns),
        "best": _choice(one.best),
    }


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "degree": choice.degree,
        "grouped": choice.grouped,
        "kernels": [{"part": kernel.part, "budget": kernel.budget.value} for kernel in choice.kernels],
    }
