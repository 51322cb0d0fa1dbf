"""Libraries of GO-kernels: deciding, files, merging, refusing others' devices."""

import dataclasses
import json
import time

import pytest

from conccl.core.errors import InputError, StoreError
from conccl.core.kinds import DType
from conccl.core.ops import Gemm
from conccl.costs.catalogue import load_device
from conccl.tune.gemms.build import corpus, library_of, surveyed
from conccl.tune.gemms.choice import VENDOR, GemmSet
from conccl.tune.gemms.library import load, merged, require_alike, save
from conccl.tune.gemms.logic import FEATURES, GROUPED, Logic, features
from conccl.tune.gemms.running import SimulatedRunner
from conccl.tune.gemms.training import example_of, train

H200 = load_device("h200-sxm")
RUNNER = SimulatedRunner(device=H200)


@pytest.fixture(scope="module")
def found():
    return list(surveyed(corpus(24), device=H200, runner=RUNNER))


@pytest.fixture(scope="module")
def library(found):
    return library_of(found, device=H200, runner=RUNNER)


def test_features_are_those_that_are_named():
    assert len(features([(64, 128, 256)] * 3, free_sms=132)) == len(FEATURES)


def test_logic_picks_the_highest_score_that_is_allowed():
    logic = Logic(classes=(GROUPED, 1, 8), weights=((0.0,) * len(FEATURES),) * 3, constants=(2.0, 0.0, 1.0))
    shapes = [(64, 128, 256)] * 8
    assert logic.decide(shapes, free_sms=132, can_group=True)[0] == GROUPED
    assert logic.decide(shapes, free_sms=132, can_group=False)[0] == 8
    assert logic.decide(shapes[:2], free_sms=132, can_group=False)[0] == 1


def test_scores_of_any_size_give_a_probability():
    weights = ((0.0,) * len(FEATURES), (1e4,) * len(FEATURES))
    logic = Logic(classes=(1, 2), weights=weights, constants=(0.0, 0.0))
    assert logic.decide([(64, 128, 256)] * 2, free_sms=132, can_group=False) == (2, 1.0)


def test_small_gemms_run_together_and_very_large_ones_hardly_gain(library):
    small = library.decide(((64, 2048, 512),) * 8, dtype=DType.BF16, grouping=False)
    assert small.choice.degree >= 4
    assert small.probability > 0.3
    one = library.decide(((64, 2048, 512),), dtype=DType.BF16)
    assert (one.choice.degree, one.reason) == (1, "one GEMM")


def test_a_dtype_that_was_not_tuned_runs_one_after_the_other(library):
    decision = library.decide(((64, 64, 64),) * 4, dtype=DType.FP32)
    assert decision.choice.degree == 1
    assert "bf16, not for fp32" in decision.reason


def test_a_shape_far_from_all_tuned_ones_gets_the_vendors_kernel(library):
    decision = library.decide(((1, 1 << 20, 1),) * 4, dtype=DType.BF16, grouping=False)
    assert set(decision.choice.kernels) == {VENDOR}


def test_deciding_again_is_fast(library):
    shapes = ((64, 4096, 1024),) * 8
    library.decide(shapes, dtype=DType.BF16)
    start = time.perf_counter()
    for _ in range(1000):
        library.decide(shapes, dtype=DType.BF16)
    assert (time.perf_counter() - start) / 1000 < 50e-6  # 1 to 2 us on an idle machine


def test_more_busy_sms_than_there_are_is_refused(library):
    with pytest.raises(InputError, match="busy_sms is 132"):
        library.decide(((64, 64, 64),) * 4, dtype=DType.BF16, busy_sms=132)


def test_on_sets_it_has_not_seen_it_is_near_the_best_and_not_behind_sequential(found):
    logic = train([example_of(one, free_sms=132) for one in found])
    unseen = [
        example_of(one, free_sms=132) for one in surveyed(corpus(15, seed=7), device=H200, runner=RUNNER)
    ]
    lost = []
    for one in unseen:
        shapes = [(op.m, op.n, op.k) for op in one.gemms.gemms]
        class_, _ = logic.decide(shapes, free_sms=132, can_group=one.gemms.can_be_grouped)
        lost.append(one.times_ns[class_] / one.best_ns)
        assert one.times_ns[class_] <= 1.02 * one.times_ns[1]
    assert sorted(lost)[len(lost) // 2] < 1.03


def test_training_needs_sets_that_differ():
    sets = [GemmSet(name="a", gemms=(Gemm(m=8192, n=8192, k=8192),))]
    examples = [example_of(one, free_sms=132) for one in surveyed(sets, device=H200, runner=RUNNER)]
    with pytest.raises(InputError, match="best run in the same way"):
        train(examples)


def test_a_library_comes_back_from_its_file(library, tmp_path):
    path = tmp_path / "h200.json"
    save(library, path)
    again = load(path)
    assert again.entries == library.entries
    assert again.environment == library.environment
    shapes = ((100, 2048, 512),) * 6
    assert again.decide(shapes, dtype=DType.BF16) == library.decide(shapes, dtype=DType.BF16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "has schema None"),
        ('{"schema": "conccl.gemm-library/9"}', "conccl.gemm-library/9"),
        ('{"schema": "conccl.gemm-library/1"}', "is damaged"),
    ],
)
def test_files_that_are_no_libraries_are_refused(tmp_path, text, message):
    path = tmp_path / "library.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=message):
        load(path)


def test_damaged_entries_are_refused(library, tmp_path):
    path = tmp_path / "library.json"
    save(library, path)
    document = json.loads(path.read_text())
    document["entries"][0]["m"] = -1
    path.write_text(json.dumps(document))
    with pytest.raises(StoreError, match="is damaged"):
        load(path)


def test_libraries_of_one_device_are_merged(library):
    half = dataclasses.replace(library, entries=library.entries[:5])
    rest = dataclasses.replace(library, entries=library.entries[5:])
    assert set(merged([half, rest]).entries) == set(library.entries)
    with pytest.raises(InputError, match="no libraries"):
        merged([])


def test_a_library_of_another_device_or_version_is_refused(library):
    other = dataclasses.replace(library.environment, device="mi300x")
    with pytest.raises(StoreError, match="made for h200-sxm"):
        require_alike(library, other, sms=304, where="the library")
    newer = dataclasses.replace(library.environment, versions={"device": "0"})
    with pytest.raises(StoreError, match="made with device"):
        require_alike(library, newer, sms=132, where="the library")
    with pytest.raises(StoreError, match="a library to merge"):
        merged([library, dataclasses.replace(library, environment=other)])
