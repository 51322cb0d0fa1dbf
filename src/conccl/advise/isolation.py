"""What every kernel of a rank would take alone: measured in the trace, else predicted, else not known.

Measured beats predicted always. Where kernels of a family (GEMMs, say) have both, the typical ratio of
measured to predicted corrects the family's predictions, and what scatter is left is their uncertainty.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.advise.analysis import Calibration, PredictionsUsed
from conccl.advise.predictions import Predict, Predictions
from conccl.core.timeline import Activity, Mask
from conccl.traces.breakdown import Sides
from conccl.traces.contention import Slowdowns
from conccl.traces.findings import Contention
from conccl.traces.integrals import Numbers
from conccl.traces.slowdown_fit import weighted_medians
from conccl.traces.trace import Trace

SLOWEST = 20.0
"""A predicted slowdown beyond this says that the prediction is wrong, not that contention is strong."""

WAITS_FROM = 2.0
"""A kernel that waits for other ranks and takes this many times what is predicted has waited: how much
contention there was cannot be told."""

ENOUGH = 3
"""Kernels measured alone from which on a family is calibrated."""

MOST_CALIBRATING = 100
"""Kernels measured alone that are predicted for it: those with most time."""

TOO_FAR = 0.5
"""Predictions of a family that are further off than this, by relative error, are not used."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Isolation:
    """Rates of rows, and what they rest on."""

    rate: Numbers
    """One entry a row: isolated over concurrent time while the other side runs; NaN: not known."""
    doubt: Numbers | None
    """One entry a row whose rate is predicted: how far off it may be; NaN: measured. None: all are."""
    kernels: tuple[Contention, ...]
    """The contention, with predicted isolated times where there are no measured ones."""
    used: PredictionsUsed | None
    """None: no predictions were asked for, or none were needed."""


def isolation(
    trace: Trace, found: Slowdowns, /, *, every: Sides, waiting: Mask, predict: Predict | None
) -> Isolation:
    """What is measured, and predictions for the kernels that ran beside the other side and never alone.

    ``waiting`` marks kernels that wait for other ranks; those are not taken to be faster under compute.
    """
    rate = np.where(waiting, np.minimum(found.rate, 1.0), found.rate)
    covered = _covered(trace, every)
    wanted = (found.group >= 0) & ~np.isfinite(found.alone_ns) & (covered > 0)
    if predict is None or not wanted.any():
        return Isolation(rate=rate, doubt=None, kernels=found.kernels, used=None)
    predicted = predict(trace, wanted)
    if predicted.device is None or not np.isfinite(predicted.alone_ns).any():
        used = PredictionsUsed(
            device=predicted.device,
            reason=predicted.reason or "no kernel without an isolated instance records what it does",
            kernels=0,
            calibration=(),
        )
        return Isolation(rate=rate, doubt=None, kernels=found.kernels, used=used)
    calibrated, calibration = _calibrated(trace, found, predicted, waiting=waiting, predict=predict)
    rates, doubts = _rates(trace, found, calibrated, covered=covered, waiting=waiting)
    kernels = _with_predictions(found, calibrated)
    used = PredictionsUsed(
        device=predicted.device,
        reason="",
        kernels=sum(kernel.predicted_ns is not None for kernel in kernels),
        calibration=calibration,
    )
    return Isolation(rate=np.where(np.isfinite(rates), rates, rate), doubt=doubts, kernels=kernels, used=used)


def _covered(trace: Trace, every: Sides, /) -> npt.NDArray[np.float64]:
    """How much of each row the other side covers; 0 for fused kernels, which are both."""
    timeline = trace.timeline
    start, end = timeline.start_ns, timeline.end_ns
    covered = np.zeros(len(timeline))
    for mine, other in (
        (timeline.activity == Activity.COMPUTE, every.communication),
        (timeline.activity == Activity.COMMUNICATION, every.compute),
    ):
        covered[mine] = other.coverage(start[mine], end[mine])
    return covered


def _calibrated(
    trace: Trace, found: Slowdowns, predicted: Predictions, /, *, waiting: Mask, predict: Predict
) -> tuple[Predictions, tuple[Calibration, ...]]:
    """The predictions times each family's typical ratio; those of families that are too far off left out.

    What waits for other ranks calibrates nothing: its isolated instances waited too.
    """
    measured = _longest_measured(trace, found, among=np.isfinite(found.alone_ns) & ~waiting)
    check = predict(trace, measured)
    alone_ns, uncertainty = predicted.alone_ns.copy(), predicted.uncertainty.copy()
    calibrations = []
    for place, family in enumerate(predicted.families):
        mine = predicted.family == place
        if not mine.any():
            continue
        own = float(np.nanmean(uncertainty[mine]))
        ratios, weights = _ratios(found, check, family)
        factor, error = _typical(ratios, weights) if len(ratios) >= ENOUGH else (1.0, own)
        used = error <= TOO_FAR
        alone_ns[mine] *= factor if used else np.nan
        if len(ratios) >= ENOUGH:
            uncertainty[mine] = error
        calibrations.append(
            Calibration(
                family=family,
                measured=len(ratios),
                factor=factor if len(ratios) >= ENOUGH else None,
                error_before=_error(ratios, weights) if len(ratios) else None,
                uncertainty=error,
                used=used,
            )
        )
    kept = np.isfinite(alone_ns)
    return (
        dataclasses.replace(
            predicted,
            alone_ns=alone_ns,
            uncertainty=np.where(kept, uncertainty, np.nan),
            family=np.where(kept, predicted.family, -1).astype(np.int32),
        ),
        tuple(calibrations),
    )


def _longest_measured(trace: Trace, found: Slowdowns, /, *, among: Mask) -> Mask:
    """One row of each kernel that was measured alone, of those with most time."""
    rows = np.flatnonzero(among)
    groups, first, which = np.unique(found.group[rows], return_index=True, return_inverse=True)
    summed = np.bincount(which.reshape(-1), weights=trace.timeline.duration_ns[rows], minlength=len(groups))
    chosen = np.zeros(len(trace.timeline), dtype=np.bool_)
    chosen[rows[first[np.argsort(-summed, kind="stable")[:MOST_CALIBRATING]]]] = True
    return chosen


def _ratios(found: Slowdowns, check: Predictions, family: str, /) -> tuple[Numbers, Numbers]:
    """Measured over predicted isolated time of the family's kernels that have both; the measured times."""
    if family not in check.families:
        return np.zeros(0), np.zeros(0)
    rows = np.flatnonzero(check.family == check.families.index(family))
    alone_ns: Numbers = found.alone_ns[rows]
    return alone_ns / check.alone_ns[rows], alone_ns


def _typical(ratios: Numbers, weights: Numbers, /) -> tuple[float, float]:
    """The median ratio by time, and the relative error left to a kernel that it was not taken from."""
    together = np.zeros(len(ratios), dtype=np.intp)
    factor = float(weighted_medians(together, ratios, weights=weights, count=1)[0])
    return factor, _error(ratios / factor, weights) * len(ratios) / (len(ratios) - 1)


def _error(ratios: Numbers, weights: Numbers, /) -> float:
    """The mean relative error by time: a long kernel's counts for more."""
    return float(np.average(np.abs(1 / ratios - 1), weights=weights))


def _rates(
    trace: Trace,
    found: Slowdowns,
    predicted: Predictions,
    /,
    *,
    covered: npt.NDArray[np.float64],
    waiting: Mask,
) -> tuple[Numbers, Numbers]:
    """Each row's rate such that all instances of its kernel together lose what they took beyond predictions.

    And how far off it is if the prediction errs by its uncertainty. NaN where nothing is predicted.
    """
    rates, doubts = np.full((2, len(trace.timeline)), np.nan)
    rows = np.flatnonzero(np.isfinite(predicted.alone_ns) & (covered > 0))
    if not len(rows):
        return rates, doubts
    groups, which = np.unique(found.group[rows], return_inverse=True)
    which = which.reshape(-1)

    def total(values: Numbers) -> Numbers:
        return np.bincount(which, weights=values, minlength=len(groups)).astype(np.float64)

    duration, beside = total(trace.timeline.duration_ns[rows].astype(np.float64)), total(covered[rows])
    alone, doubt = total(predicted.alone_ns[rows]), total((predicted.alone_ns * predicted.uncertainty)[rows])
    # Beyond its own uncertainty a prediction cannot say that overlap makes a kernel faster.
    middle, low, high = (
        np.clip(1 - (duration - expected) / beside, 1 / SLOWEST, 1 + doubt / beside)
        for expected in (alone, alone - doubt, alone + doubt)
    )
    waited = (np.bincount(which, weights=waiting[rows], minlength=len(groups)) > 0) & (
        duration > WAITS_FROM * alone
    )
    middle[waited] = np.nan
    rates[rows], doubts[rows] = middle[which], np.where(waited, np.nan, (high - low) / 2)[which]
    return rates, doubts


def _with_predictions(found: Slowdowns, predicted: Predictions, /) -> tuple[Contention, ...]:
    """Contention records of kernels without an isolated instance, with what is predicted of them."""
    rows = np.flatnonzero(np.isfinite(predicted.alone_ns))
    first = dict(zip(found.group[rows].tolist(), rows.tolist(), strict=True))
    return tuple(
        kernel
        if group not in first
        else dataclasses.replace(
            kernel,
            predicted_ns=round(float(predicted.alone_ns[first[group]])),
            predicted_uncertainty=float(predicted.uncertainty[first[group]]),
        )
        for group, kernel in zip(found.kernel_group, found.kernels, strict=True)
    )
