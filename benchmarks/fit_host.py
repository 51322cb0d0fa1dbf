"""Fit what calls cost the host to half of the measured models, and say how far off the other half is.

    python benchmarks/fit_host.py

Prints the constants ``host.*`` and the errors; host and GPU are compared where each of them limits a step.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import whole_models
from scipy.optimize import least_squares

from conccl.costs.catalogue import load_device
from conccl.workloads.captured import Captured
from conccl.workloads.host import Counts, counts_of

BOUNDS_NS = {
    "launch": (6500.0, 14_000.0),
    "more": (3000.0, 7200.0),
    "backward": (6000.0, 20_000.0),
    "view": (1000.0, 5000.0),
    "python": (300.0, 1200.0),
    "tensor": (500.0, 4000.0),
    "step": (100_000.0, 1_200_000.0),
    "plan": (1000.0, 60_000.0),
}
"""What each may be: a launch alone is 5.3 us in the middle and 7.2 us in one of ten (`host_calls` of the
measured runs), and with its dispatch more; an op that launches nothing less than that."""

GAP_MS = 1.1e-3
"""On the GPU between kernels that are launched one by one."""


def columns(captured: Captured) -> list[float]:
    """How often the step does what each constant is for."""
    total = Counts()
    for call in captured.calls:
        total += counts_of(call, captured)
    trains = 1.0 if total.backward else 0.0
    return [
        total.launch,
        total.more,
        total.backward,
        total.view,
        total.python,
        total.tensor,
        trains,
        total.plan,
    ]


def host_limited(row: dict[str, Any]) -> bool:
    """Whether the GPU waits for the host in a loop of steps."""
    return bool(row["kernel_ms"] + GAP_MS * row["n_kernels"] < 0.9 * row["iter_ms"])


def main() -> None:
    device = load_device("h200-sxm")
    rows = whole_models.read(whole_models.DATA)
    table = np.array([columns(whole_models.captured_of(row, device)) for row in rows])
    # A step that the GPU limits shows what the host needs only where it was started on an idle GPU.
    measured = np.array([row["iter_ms"] if host_limited(row) else row["host_ms"] for row in rows]) * 1e6
    seen = np.arange(len(rows)) % 2 == 0

    def residuals(logs: np.ndarray) -> np.ndarray:
        return np.log(table[seen] @ np.exp(logs) / measured[seen])

    low, high = np.log(np.array(list(BOUNDS_NS.values()))).T
    found = least_squares(residuals, (low + high) / 2, bounds=(low, high), loss="soft_l1", f_scale=0.1)
    for name, value in zip(BOUNDS_NS, np.exp(found.x), strict=True):
        print(f"{name}_ns = {float(f'{value:.3g}'):g}")
    errors = 100 * np.abs(table @ np.exp(found.x) / measured - 1)
    for label, half in (("fitted", seen), ("other", ~seen)):
        print(
            f"{label} half: median {statistics.median(errors[half]):.1f} %, mean {errors[half].mean():.1f} %"
        )


if __name__ == "__main__":
    main()
