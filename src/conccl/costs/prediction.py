"""Predicted times of rows of measurements, beside the measured ones where rows have them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conccl.core.errors import ConcclError, InputError
from conccl.core.hardware import Device
from conccl.core.ops import Collective
from conccl.costs.kernels import kernels_of
from conccl.costs.rows import ops_of_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one row is predicted to take, or why it could not be."""

    index: int
    row: Mapping[str, Any]
    predicted_us: float | None = None
    """Of one call among many in a CUDA graph: kernels, and the gaps between them."""
    uncertainty: float | None = None
    """Relative error to expect."""
    kernels: tuple[str, ...] = ()
    measured_us: float | None = None
    problem: str = ""

    @property
    def error_percent(self) -> float | None:
        """How far off the prediction is; None where there is no measured time."""
        if self.measured_us is None or self.predicted_us is None:
            return None
        return 100 * (self.predicted_us / self.measured_us - 1)


def predict_rows(rows: Sequence[object], device: Device, /) -> tuple[Prediction, ...]:
    """A prediction for every row; a row that is wrong has a problem and the others go on."""
    return tuple(_predicted(index, row, device) for index, row in enumerate(rows))


def mape_percent(predictions: Sequence[Prediction], /) -> float | None:
    """Mean absolute error of the rows that have a measured time; None where none has."""
    found = [abs(p.error_percent) for p in predictions if p.error_percent is not None]
    return sum(found) / len(found) if found else None


def _predicted(index: int, row: object, device: Device) -> Prediction:
    if not isinstance(row, Mapping):
        problem = f"row {index} is {type(row).__name__}; it must be an object with keys such as m, n, k."
        return Prediction(index=index, row={}, problem=problem)
    try:
        measured_us = _measured_us(row)
        ops = ops_of_row(row)
        kernels = [kernel for op in ops for kernel in kernels_of(op, device)]
    except ConcclError as error:
        return Prediction(index=index, row=row, problem=f"row {index}: {error}")
    gaps_ns = 0 if isinstance(ops[0], Collective) else device.kernel_launch_ns * len(kernels)
    time_ns = sum(kernel.isolated_ns for kernel in kernels)
    spread_ns = sum(kernel.isolated_ns * kernel.uncertainty for kernel in kernels)
    return Prediction(
        index=index,
        row=row,
        predicted_us=(time_ns + gaps_ns) / 1e3,
        uncertainty=spread_ns / time_ns if time_ns else None,
        kernels=tuple(kernel.name for kernel in kernels),
        measured_us=measured_us,
    )


def _measured_us(row: Mapping[str, Any]) -> float | None:
    us = row.get("us")
    if us is None:
        return None
    if isinstance(us, bool) or not isinstance(us, (int, float)) or not 0 < us < math.inf:
        raise InputError(f"us is {us!r}; a measured time must be above 0, in microseconds.")
    return float(us)
