"""Sets of GEMMs on the simulator: what runs together, and finding it with few measurements."""

import json

import pytest

from conccl.bench.store import Store
from conccl.core.errors import InputError
from conccl.core.kinds import DType
from conccl.core.measurement import Environment, Measurement, Status
from conccl.core.ops import Gemm
from conccl.costs.catalogue import load_device
from conccl.tune.gemms.build import corpus, surveyed
from conccl.tune.gemms.choice import (
    VENDOR,
    Budget,
    Choice,
    GemmSet,
    KernelChoice,
    default_concurrency,
    read_sets,
    sequential,
)
from conccl.tune.gemms.running import SimulatedRunner, bound_ns
from conccl.tune.gemms.search import all_choices, exhaustive, search

H200 = load_device("h200-sxm")
RUNNER = SimulatedRunner(device=H200)


def several(count, m=64, n=2048, k=512):
    return GemmSet(name=f"{count} of {m}x{n}x{k}", gemms=(Gemm(m=m, n=n, k=k),) * count)


def estimate(gemms, choice):
    return bound_ns(gemms, choice, device=H200)


def time_ns(gemms, choice, runner=RUNNER):
    return runner.measure(gemms, choice).median_ns


def test_small_gemms_are_faster_together_and_large_ones_are_not():
    small, large = several(8), several(2, m=8192, n=8192, k=8192)
    assert time_ns(small, default_concurrency(small)) < 0.5 * time_ns(small, sequential(small))
    assert time_ns(large, default_concurrency(large)) > 0.97 * time_ns(large, sequential(large))


def test_kernels_tuned_for_a_part_of_the_device_gain_beside_others_and_lose_alone():
    gemms = several(8)
    half = Choice(degree=8, kernels=(KernelChoice(part=2),) * 8)
    assert time_ns(gemms, half) < time_ns(gemms, default_concurrency(gemms))
    alone = several(1, m=4096, n=4096, k=4096)
    assert time_ns(alone, Choice(degree=1, kernels=(KernelChoice(part=8),))) >= time_ns(
        alone, sequential(alone)
    )


def test_a_budget_keeps_a_kernel_on_its_share_of_sms():
    alone = several(1, m=8192, n=8192, k=4096)
    kept = Choice(degree=1, kernels=(KernelChoice(part=4, budget=Budget.SHARE),))
    assert time_ns(alone, kept) > 3 * time_ns(alone, sequential(alone))


def test_sms_that_others_have_taken_make_gemms_slower():
    gemms = several(2, m=4096, n=4096, k=4096)
    busy = SimulatedRunner(device=H200, busy_sms=66)
    assert time_ns(gemms, sequential(gemms), busy) > 1.5 * time_ns(gemms, sequential(gemms))


def test_degrees_are_those_that_differ():
    assert several(1).degrees == (1,)
    assert several(3).degrees == (1, 2, 4)
    assert several(16).degrees == (1, 2, 4, 8, 16)
    assert several(40).degrees == (1, 2, 4, 8, 16)


def test_only_gemms_of_one_width_can_be_grouped():
    assert several(2).can_be_grouped
    unlike = GemmSet(name="unlike", gemms=(Gemm(m=8, n=8, k=8), Gemm(m=8, n=16, k=8)))
    assert not unlike.can_be_grouped
    assert not any(choice.grouped for choice in all_choices(unlike))


@pytest.mark.parametrize("gemms", [several(8), several(3, m=512, n=1024, k=1024), several(16, m=32)])
def test_the_search_needs_a_fifth_of_the_measurements_and_loses_little(gemms):
    every = exhaustive(gemms, measure=RUNNER.measure)
    found = search(gemms, measure=RUNNER.measure, estimate=estimate)
    assert found.measurements * 3 <= every.measurements
    assert found.best_ns <= 1.02 * every.best_ns


def test_mixed_sets_may_have_a_kernel_for_each_gemm():
    gemms = GemmSet(name="mixed", gemms=(Gemm(m=64, n=4096, k=1024), Gemm(m=2048, n=1024, k=1024)))
    found = exhaustive(gemms, measure=RUNNER.measure)
    assert any(len(set(choice.kernels)) == 2 for choice in found.times_ns)
    assert found.best_ns <= min(found.sequential_ns, found.default_ns)


def test_choices_that_fail_are_left_out_and_noisy_ones_are_measured_again():
    environment = Environment(executor="gpu", device="made")
    asked = []

    def measure(gemms, choice):
        asked.append(choice)
        if choice.degree == 2:
            return Measurement(
                label="x", samples_ns=(), environment=environment, status=Status.OUT_OF_MEMORY, reason="full"
            )
        return Measurement(label="x", samples_ns=(90, 100, 120), environment=environment)

    found = exhaustive(several(2), measure=measure)
    assert not any(choice.degree == 2 for choice in found.times_ns)
    assert len(asked) > len(set(asked))


def test_an_interrupted_survey_goes_on_from_its_store(tmp_path):
    sets = corpus(3)
    path = tmp_path / "store.jsonl"

    list(surveyed(sets[:2], device=H200, runner=RUNNER, keeper=Store(path, environment=RUNNER.environment)))
    before = path.read_text().count("\n")
    asked = []

    class Watched(SimulatedRunner):
        def measure(self, gemms, choice, /, *, label=""):
            asked.append(gemms)
            return super().measure(gemms, choice, label=label)

    watched = Watched(device=H200)
    found = list(
        surveyed(sets, device=H200, runner=watched, keeper=Store(path, environment=watched.environment))
    )
    assert len(found) == 3
    assert set(asked) == {sets[2]}
    assert path.read_text().count("\n") == before + len(asked)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must hold a list of sets"),
        ([{"name": "a"}], 'must be an object with "gemms"'),
        ([{"name": "a", "gemms": []}], "has no GEMMs"),
        ([{"name": "a", "gemms": [[1, 2]]}], "a GEMM is"),
        ([{"name": "a", "gemms": [[1, 2, "3"]]}], "a GEMM is"),
        ([{"name": "a", "gemms": [[1, 0, 3]]}], "must be"),
        ([{"name": "a", "dtype": "bf17", "gemms": [[1, 1, 3]]}], "bf17"),
    ],
)
def test_files_that_hold_no_sets_are_refused(tmp_path, rows, message):
    path = tmp_path / "sets.json"
    path.write_text(rows if isinstance(rows, str) else json.dumps(rows))
    with pytest.raises(InputError, match=message):
        read_sets(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_sets(tmp_path / "none.json")


def test_the_corpus_is_drawn_once_and_for_all():
    assert corpus(20) == corpus(20)
    assert corpus(1, dtype=DType.FP16)[0].gemms[0].dtype is DType.FP16


def test_kernels_of_the_vendor_are_what_an_op_costs_alone():
    gemms = several(1)
    assert VENDOR.is_vendor
    assert time_ns(gemms, sequential(gemms)) > 0
