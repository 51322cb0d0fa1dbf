"""Few kernels for many, on measured runs and on made ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shared_data import shared

from conccl.core.errors import InputError
from conccl.core.timeline import Activity
from conccl.sampling.kernels import sample_kernels, stratified
from conccl.traces.kernel_rows import kernel_rows
from conccl.traces.kineto import read_trace
from conccl.traces.sources import find_traces

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_equal_kernels_need_one() -> None:
    sample = sample_kernels(["gemm"] * 100, np.full(100, 5000))
    assert [(p.index, p.weight) for p in sample.points] == [(0, 100)]
    assert sample.error_percent == 0
    assert sample.interval_percent == 0


@pytest.mark.parametrize(
    "model", ["gpt2-small-train-b8-s1024", "llama3-8b-8layers-infer-b1-s8192", "resnet50-train-b128"]
)
def test_measured_models_within_a_percent_at_fifty_times_fewer(model: str) -> None:
    kernels = json.loads(shared("h200/models.json").read_text())[model]["kernels"]
    durations = np.array([round(1000 * us) for _, us in kernels])
    sample = sample_kernels([name for name, _ in kernels], durations, most=len(kernels) // 50)
    assert sample.reduction >= 50
    assert sample.error_percent is not None
    assert sample.error_percent < 1


def test_one_step_of_a_trace_stands_for_the_next() -> None:
    """Chosen on one training step's times, scored on another's: what the choice is for."""
    recording = find_traces([EXAMPLES / "overlap_step" / "ce.pt.trace.json.gz"]).files[0]
    timeline = read_trace(recording)[0].timeline
    kernels = timeline.where(timeline.activity == Activity.COMPUTE)
    steps = [kernels.where(kernels.columns["step"] == step) for step in (2, 4)]
    names = [[rows.names[name] for name in rows.name_id] for rows in steps]
    assert names[0] == names[1]
    sample = sample_kernels(names[0], steps[0].duration_ns, most=len(names[0]) // 8)
    elsewhere = [int(steps[1].duration_ns[point.index]) for point in sample.points]
    assert sample.scaled_ns(elsewhere) == pytest.approx(int(steps[1].duration_ns.sum()), rel=0.03)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 10**7)), min_size=1, max_size=300))
def test_every_kernel_is_stood_for(rows: list[tuple[str, int]]) -> None:
    sample = sample_kernels([name for name, _ in rows], np.array([time for _, time in rows]))
    assert sum(point.weight for point in sample.points) == len(rows)
    assert sample.actual_ns == sum(time for _, time in rows)
    assert len({point.index for point in sample.points}) == len(sample.points)
    assert sample.interval_percent <= 1.0 or len(sample.points) == len({(n, t) for n, t in rows})


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=300), st.integers(1, 20))
def test_no_more_than_allowed(times: list[int], most: int) -> None:
    assert len(sample_kernels(["k"] * len(times), np.array(times), most=most).points) <= most


def test_scaling_needs_every_duration() -> None:
    sample = sample_kernels(["a", "b"], np.array([1, 2]))
    with pytest.raises(InputError, match="Give one for each"):
        sample.scaled_ns([1])


@pytest.mark.parametrize(
    ("names", "durations", "message"), [([], [], "no kernels"), (["a"], [-1], "never negative")]
)
def test_what_cannot_be_sampled(names: list[str], durations: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        sample_kernels(names, np.array(durations))


ROOT = Path(__file__).parents[2]


def measured_models() -> list[tuple[str, list[str], np.ndarray]]:
    """Every model whose kernels were measured one by one."""
    path = ROOT / "benchmarks" / "data" / "h200-sxm" / "2026-11-30" / "models.json.gz"
    rows = json.loads(gzip.decompress(path.read_bytes()))["rows"]
    return [
        (
            row["model"],
            [name for name, *_ in row["kernels"]],
            np.array([round(1000 * us) for _, us, *_ in row["kernels"]]),
        )
        for row in rows
        if isinstance(row.get("kernels"), list)
    ]


def test_a_fiftieth_of_the_kernels_of_every_measured_model() -> None:
    """Below a hundred kernels a fiftieth is one, which cannot stand for a long and a short one."""
    models = measured_models()
    assert len(models) > 30
    for model, names, durations in models:
        if len(names) >= 100:
            sample = sample_kernels(names, durations, most=len(names) // 50)
            assert sample.reduction >= 50, model
            assert sample.error_percent is not None
            assert sample.error_percent < 1, model


def test_the_interval_covers_what_it_says_when_kernels_are_drawn() -> None:
    """Drawn at random from each stratum, 95 % of projections lie within: counted over all models."""
    random = np.random.default_rng(0)
    covered = []
    for _, names, durations in measured_models():
        for error in (1.0, 5.0):
            sample = sample_kernels(names, durations, error_percent=error)
            assert sample.interval_percent <= error
            total = np.zeros(400)
            for stratum in stratified(names, durations, error_percent=error):
                total += len(stratum) * durations[stratum][random.integers(0, len(stratum), len(total))]
            off = 100 * np.abs(total / durations.sum() - 1)
            covered.append((off <= sample.interval_percent + 1e-9).mean())
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)
    assert min(covered) > 0.88


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=200), st.sampled_from([30.0, 5.0, 1.0]))
def test_the_chosen_are_never_further_off_than_their_means_allow(times: list[int], error: float) -> None:
    durations = np.array(times)
    sample = sample_kernels(["k"] * len(times), durations, error_percent=error)
    strata = stratified(["k"] * len(times), durations, error_percent=error)
    worst = sum(len(s) * float(np.abs(durations[s] - durations[s].mean()).min()) for s in strata)
    assert abs(sample.projected_ns - sample.actual_ns) <= worst + len(strata)


@pytest.mark.parametrize(
    "name",
    [
        "kineto/resnet50_v100_num_workers_4_worker0.pt.trace.json.gz",
        "hta/trace_filter_sampled_rank-0.json.gz",
        "hta/trace_diff_control_control.json.gz",
        "tracelens/b200__eager_trace.json.gz",
        "param_dlrm_8rank/dlrm_kineto.tar.gz",
    ],
)
def test_a_fiftieth_of_the_kernels_of_recorded_traces(name: str) -> None:
    rows = kernel_rows([shared(f"traces/{name}")])
    sample = sample_kernels(rows.kinds, rows.durations_ns, names=rows.names, most=len(rows.names) // 50)
    assert sample.reduction >= 50
    assert all(point.name == rows.names[point.index] for point in sample.points)
    assert sample.error_percent is not None
    assert sample.error_percent < 1
