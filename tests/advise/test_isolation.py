"""Predictions where a trace shows no isolated instance: used, corrected, doubted, or not."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest

from conccl.advise.predict import CostModels
from conccl.advise.predictions import Predict, Predictions
from conccl.advise.rank import RankFindings, RankOptions, analyze_rank
from conccl.core.timeline import Mask
from conccl.traces.classify import HostCopies
from conccl.traces.findings import OverlapEstimate
from conccl.traces.kineto import read_trace
from conccl.traces.sources import find_traces
from conccl.traces.trace import Trace
from made_traces import Row, made_trace
from shared_data import shared

EXAMPLES = Path(__file__).parents[2] / "examples" / "overlap_step"
US = 1000


def predicting(times_us: dict[str, float], /, *, uncertainty: float = 0.1) -> Predict:
    """Predicts each kernel by its name; its family is the first letter of that."""

    def predict(trace: Trace, wanted: Mask) -> Predictions:
        names = [trace.timeline.names[name] for name in trace.timeline.name_id]
        known = np.array([name in times_us for name in names]) & wanted
        families = tuple(dict.fromkeys(name[0] for name in times_us))
        return Predictions(
            alone_ns=np.where(known, [1e3 * times_us.get(name, 0) for name in names], np.nan),
            uncertainty=np.where(known, uncertainty, np.nan),
            family=np.where(
                known, [families.index(n[0]) if n[0] in families else -1 for n in names], -1
            ).astype(np.int32),
            families=families,
            device="made-up",
        )

    return predict


def analysed(rows: list[Row], predict: Predict | None, /) -> RankFindings:
    return analyze_rank(made_trace(rows), RankOptions(predict=predict))


def beside(name: str, start_us: int, took_us: int, /, *, under: str = "comm") -> list[Row]:
    """A kernel and communication over all of its time."""
    start, end = start_us * US, (start_us + took_us) * US
    return [
        Row(name=name, start=start, end=end),
        Row(name=under, start=start, end=end, stream="8", activity=1),
    ]


def alone(name: str, start_us: int, took_us: int, /, *, activity: int = 0) -> Row:
    start = start_us * US
    return Row(name=name, start=start, end=start + took_us * US, activity=activity)


def test_measured_beats_predicted() -> None:
    rows = [alone("gemm", 0, 100), alone("comm", 200, 150, activity=1), *beside("gemm", 1000, 150)]
    wrong = predicting({"gemm": 1, "comm": 1})
    measured, predicted = analysed(rows, None), analysed(rows, wrong)
    assert predicted.analysis.overlap == measured.analysis.overlap
    assert predicted.analysis.overlap.source == "measured"
    assert predicted.analysis.predictions is None
    assert predicted.contention == measured.contention


def test_only_what_was_never_alone_is_predicted_and_says_so() -> None:
    rows = [alone("comm", 200, 150, activity=1), *beside("gemm", 1000, 150)]
    found = analysed(rows, predicting({"gemm": 100, "comm": 1}))
    overlap = found.analysis.overlap
    assert overlap.overlap is not None
    assert (overlap.source, overlap.predicted_ns) == ("predicted", 150 * US)
    assert overlap.overlap.compute_ns == 100 * US
    assert overlap.overlap.communication_ns == 300 * US
    assert (overlap.compute_uncertainty_ns, overlap.communication_uncertainty_ns) == (10 * US, 0)
    (region,) = found.regions
    assert (region.source, region.compute_lost_ns, region.compute_uncertainty_ns) == (
        "predicted",
        50 * US,
        10 * US,
    )
    kernels = {kernel.name: kernel for kernel in found.contention}
    assert (kernels["gemm"].predicted_ns, kernels["gemm"].predicted_uncertainty) == (100 * US, 0.1)
    assert kernels["gemm"].slowdown is None
    assert kernels["comm"].predicted_ns is None


def test_too_much_unknown_stays_unknown() -> None:
    rows = [*beside("gemm", 0, 150), *beside("mystery", 200, 150)]
    found = analysed(rows, predicting({"gemm": 100, "comm": 100}))
    assert found.analysis.overlap.source == "unknown"
    assert found.analysis.overlap.unknown_ns == 150 * US


def test_kernels_that_have_both_correct_their_family() -> None:
    measured = [alone(f"gemm{i}", 1000 * i, 2 * (100 + i)) for i in range(1, 6)]
    rows = [
        *measured,
        alone("comm", 9000, 100, activity=1),
        *beside("gemm9", 10_000, 300),
    ]
    times = {f"gemm{i}": 100.0 + i for i in range(1, 6)} | {"gemm9": 120.0}
    found = analysed(rows, predicting(times))
    assert found.analysis.predictions is not None
    (family,) = found.analysis.predictions.calibration
    assert (family.measured, family.factor, family.used) == (5, pytest.approx(2), True)
    assert family.error_before == pytest.approx(0.5)
    assert family.uncertainty == pytest.approx(0, abs=1e-9)
    assert found.analysis.overlap.overlap is not None
    assert found.analysis.overlap.overlap.compute_ns == (2 * (101 + 102 + 103 + 104 + 105) + 240) * US


def test_a_family_that_is_far_off_is_not_used() -> None:
    scattered = [alone(f"gemm{i}", 1000 * i, 100 * 4**i) for i in range(4)]
    rows = [*scattered, alone("comm", 90_000, 100, activity=1), *beside("gemm9", 100_000, 300)]
    found = analysed(rows, predicting(dict.fromkeys(("gemm0", "gemm1", "gemm2", "gemm3", "gemm9"), 100.0)))
    assert found.analysis.predictions is not None
    (family,) = found.analysis.predictions.calibration
    assert not family.used
    assert found.analysis.overlap.source == "unknown"


def test_a_collective_that_takes_far_longer_than_predicted_has_waited() -> None:
    def analysed_with(took_us: int) -> OverlapEstimate:
        rows = [alone("gemm", 0, 100), *beside("gemm", 1000, took_us)]
        trace = dataclasses.replace(made_trace(rows), world_size=8)
        return analyze_rank(trace, RankOptions(predict=predicting({"comm": 100}))).analysis.overlap

    assert analysed_with(150).source == "predicted"
    assert analysed_with(500).source == "unknown"


def test_a_prediction_does_not_make_overlap_a_gain() -> None:
    """Longer than it took: at most by its own uncertainty is the kernel taken to be faster under overlap."""
    rows = [alone("comm", 0, 100, activity=1), *beside("gemm", 1000, 100)]
    overlap = analysed(rows, predicting({"gemm": 150})).analysis.overlap.overlap
    assert overlap is not None
    assert overlap.compute_ns == pytest.approx(115 * US)


# The shipped recordings, with isolated instances hidden


@functools.cache
def recording(name: str) -> Trace:
    (file,) = find_traces((str(EXAMPLES / f"{name}.pt.trace.json.gz"),)).files
    (trace,) = read_trace(file, host_copies=HostCopies.COMMUNICATION)
    return trace


def without(trace: Trace, /, *, compute: bool, communication: bool) -> Trace:
    """Without the steps in which only compute, or only communication, ran."""
    step, activity = trace.timeline.columns["step"], trace.timeline.activity
    kept = [
        number
        for number in range(len(trace.steps))
        for sides in [set(activity[step == number].tolist()) & {0, 1}]
        if sides == {0, 1} or (sides == {0} and not compute) or (sides == {1} and not communication)
    ]
    return dataclasses.replace(trace, timeline=trace.timeline.where(np.isin(step, kept)))


def concurrent(trace: Trace, predict: Predict | None, /) -> OverlapEstimate:
    windows = analyze_rank(trace, RankOptions(predict=predict)).analysis.windows
    (window,) = [window for window in windows if window.name == "concurrent"]
    return window.overlap


@pytest.mark.parametrize(
    ("name", "compute", "communication"),
    [("ce", True, False), ("ce", False, True), ("ce", True, True), ("sm", True, False)],
)
def test_predicted_is_close_to_measured(name: str, compute: bool, communication: bool) -> None:
    """Within 0.03 of the fraction of ideal that the hidden instances show; 0.014 where it is furthest off."""
    whole = recording(name)
    measured = concurrent(whole, None).overlap
    hidden = without(whole, compute=compute, communication=communication)
    assert concurrent(hidden, None).source == "unknown"
    found = concurrent(hidden, CostModels())
    assert found.source == "predicted"
    assert measured is not None
    assert found.overlap is not None
    assert measured.fraction_of_ideal is not None
    assert found.overlap.fraction_of_ideal == pytest.approx(measured.fraction_of_ideal, abs=0.03)
    assert found.fraction_range is not None
    low, high = found.fraction_range
    assert low <= found.overlap.fraction_of_ideal <= high


def test_a_copy_kernel_of_unknown_size_is_not_guessed() -> None:
    hidden = without(recording("sm"), compute=False, communication=True)
    assert concurrent(hidden, CostModels()).source == "unknown"


def test_reference_traces_on_known_and_unknown_devices() -> None:
    (file,) = find_traces((str(shared("traces/hta/trace_diff_control_control.json.gz")),)).files
    (trace,) = read_trace(file)
    found = analyze_rank(trace, RankOptions(predict=CostModels())).analysis.predictions
    assert found is not None
    assert found.device == "a100-sxm"
    families = {family.family: family for family in found.calibration}
    assert families["gemm"].measured > 20
    assert families["gemm"].uncertainty < 0.5
    assert families["contiguous"].measured >= 3
    assert families["contiguous"].uncertainty < 0.1
    dlrm = find_traces((str(shared("traces/param_dlrm_8rank/dlrm_kineto.tar.gz")),)).files[0]
    found = analyze_rank(read_trace(dlrm)[0], RankOptions(predict=CostModels())).analysis.predictions
    assert found is not None
    assert found.device is None
    assert "Tesla V100-SXM2-32GB is not in the catalogue" in found.reason
