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

START_NS = {
    "launch": 6000.0,
    "more": 6000.0,
    "backward": 10_000.0,
    "view": 1500.0,
    "python": 500.0,
    "tensor": 1000.0,
    "step": 300_000.0,
}
MOST_NS = 7200.0
"""A launch alone: the 90th percentile of cudaLaunchKernel in the measured runs (`host_calls`)."""

GAP_MS = 1.1e-3
"""On the GPU between kernels that are launched one by one."""


def columns(captured: Captured) -> list[float]:
    """How often the step does what each constant is for."""
    total = Counts()
    for call in captured.calls:
        total += counts_of(call, captured)
    trains = 1.0 if total.backward else 0.0
    return [total.launch, total.more, total.backward, total.view, total.python, total.tensor, trains]


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

    start = np.log(list(START_NS.values()))
    high = start + 2.5
    high[list(START_NS).index("more")] = np.log(MOST_NS)
    found = least_squares(residuals, start, bounds=(start - 2.5, high), loss="soft_l1", f_scale=0.1)
    for name, value in zip(START_NS, np.exp(found.x), strict=True):
        print(f"{name}_ns = {float(f'{value:.3g}'):g}")
    errors = 100 * np.abs(table @ np.exp(found.x) / measured - 1)
    for label, half in (("fitted", seen), ("other", ~seen)):
        print(
            f"{label} half: median {statistics.median(errors[half]):.1f} %, mean {errors[half].mean():.1f} %"
        )


if __name__ == "__main__":
    main()
