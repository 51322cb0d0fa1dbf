"""Verdicts by noise, stores by label, unlike machines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.bench.compare import Verdict, compare, verdict_of
from conccl.bench.store import Store
from conccl.core.errors import InputError, StoreError
from conccl.core.measurement import Environment, Measurement, Status

HERE = Environment(executor="gpu", device="h200-sxm")


def store(path, environment=HERE, **cells):
    with_samples = [
        Measurement(label=label, samples_ns=tuple(samples), environment=environment)
        for label, samples in cells.items()
    ]
    Store(path, environment=environment).add(with_samples)
    return path


def verdicts(a, b, **options):
    return {cell.label: cell.verdict for cell in compare(a, b, **options).cells}


def test_each_verdict(tmp_path):
    noisy = (80, 100, 120)
    a = store(tmp_path / "a.jsonl", same=[1000], faster=[1000], slower=[1000], unclear=noisy, alike=noisy)
    b = store(
        tmp_path / "b.jsonl", same=[1005], faster=[900], slower=[1100], unclear=[115], alike=(85, 102, 125)
    )
    assert verdicts(a, b) == {
        "same": Verdict.SAME,
        "faster": Verdict.FASTER,
        "slower": Verdict.SLOWER,
        "unclear": Verdict.AMBIGUOUS,
        "alike": Verdict.SAME,
    }
    assert compare(a, b).is_worse
    assert not compare(a, a).is_worse
    assert verdicts(a, b, matters=0.2)["slower"] is Verdict.SAME


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.floats(0, 0.5), st.floats(0, 0.5))
def test_more_noise_never_makes_a_difference_clearer(a_ns, b_ns, one, other):
    quiet = verdict_of(a_ns, b_ns, noise=(0.0, 0.0), matters=0.01)
    noisy = verdict_of(a_ns, b_ns, noise=(one, other), matters=0.01)
    assert noisy in (quiet, Verdict.SAME, Verdict.AMBIGUOUS)
    assert verdict_of(a_ns, a_ns, noise=(one, other), matters=0.01) is Verdict.SAME


def test_the_latest_measurement_of_a_cell_counts(tmp_path):
    a = store(tmp_path / "a.jsonl", cell=[100])
    store(a, cell=[200])
    assert compare(a, a).cells[0].a_ns == 200


@pytest.mark.parametrize(
    "other",
    [
        Environment(executor="sim", device="h200-sxm"),
        Environment(executor="gpu", device="h100-sxm"),
        Environment(executor="gpu", device="h200-sxm", gpus=8),
        Environment(executor="gpu", device="h200-sxm", emulated=True),
    ],
)
def test_unlike_machines_are_refused_unless_told(tmp_path, other):
    a, b = store(tmp_path / "a.jsonl", x=[1]), store(tmp_path / "b.jsonl", other, x=[1])
    with pytest.raises(StoreError, match="unlike"):
        compare(a, b)
    assert len(compare(a, b, unlike=True).cells) == 1


def test_other_versions_are_what_one_compares(tmp_path):
    newer = Environment(executor="gpu", device="h200-sxm", versions={"conccl": "2"})
    assert verdicts(store(tmp_path / "a.jsonl", x=[1]), store(tmp_path / "b.jsonl", newer, x=[1]))


def test_cells_that_fail_or_are_missing_are_listed_and_new_failures_are_worse(tmp_path):
    a = store(tmp_path / "a.jsonl", ran=[10], gone=[10], unproved=[10])
    b = tmp_path / "b.jsonl"
    failing = Measurement(
        label="ran", samples_ns=(), environment=HERE, status=Status.OUT_OF_MEMORY, reason="8 GiB too much"
    )
    unproved = Measurement(
        label="unproved", samples_ns=(9,), environment=HERE, proved=False, proof="no copies"
    )
    new = Measurement(label="new", samples_ns=(9,), environment=HERE)
    Store(b, environment=HERE).add([failing, unproved, new])
    found = compare(a, b)
    assert not found.cells
    assert {one.label: one.broke for one in found.unmatched} == {
        "ran": True, "gone": False, "unproved": True, "new": False,
    }  # fmt: skip
    assert "8 GiB" in found.unmatched[0].reason
    assert found.is_worse


def test_folders_are_compared_store_by_store(tmp_path):
    for name in ("a", "b"):
        for part in ("store.jsonl", "store.device.sm_count=64.jsonl"):
            store(tmp_path / name / part, x=[1])
    assert {cell.label for cell in compare(tmp_path / "a", tmp_path / "b").cells} == {
        "x",
        "device.sm_count=64/x",
    }


def test_what_is_no_store_says_so(tmp_path):
    a = store(tmp_path / "a.jsonl", x=[1])
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="characterize --output"):
        compare(a, tmp_path / "empty")
    with pytest.raises(StoreError, match="cannot read"):
        compare(a, tmp_path / "nothing.jsonl")
    (tmp_path / "old.jsonl").write_text('{"schema": "conccl.store/0"}\n')
    with pytest.raises(StoreError, match=r"conccl\.store/0"):
        compare(a, tmp_path / "old.jsonl")
    with pytest.raises(InputError, match="matters"):
        compare(a, a, matters=2.0)
