"""Runs through a made simulator whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.bench.replay import replay, run_time_ns
from conccl.bench.request import batch_time, is_served
from conccl.bench.sweep import Variation
from conccl.core.errors import InputError
from conccl.core.hardware import Device
from conccl.costs.catalogue import load_device
from conccl.sampling.logs import IterationLog
from conccl.sampling.seqpoint import Length, select
from conccl.workloads.layers import Batch, Phase

SLOW, FAST = load_device("a100-sxm"), load_device("h200-sxm")
ON = [Variation(device=SLOW), Variation(device=FAST, changes={"device.sm_count": 100})]


def linear(length: Length, device: Device) -> int:
    return (1_000_000 + 5_000 * sum(length)) * (2 if device is SLOW else 1)


def run_of(lengths: list[tuple[int, ...]], names: tuple[str, ...] = ("length",)) -> IterationLog:
    length = np.array(lengths, dtype=np.int64)
    return IterationLog(iteration=np.arange(len(length)), length=length, names=names)


def chosen(run: IterationLog) -> tuple:
    tokens = run.length.sum(axis=1).astype(float)
    known = IterationLog(iteration=run.iteration, length=run.length, statistics={"tokens": tokens})
    return select(known, statistic="tokens").seqpoints


def test_chosen_iterations_are_all_that_is_simulated() -> None:
    run = run_of([(n,) for n in np.random.default_rng(0).integers(1, 500, 4000)])
    asked: list[Length] = []

    def simulate(length: Length, device: Device) -> int:
        asked.append(length)
        return linear(length, device)

    points = chosen(run)
    found = replay(points, target="made", variations=ON, simulate=simulate)
    assert asked == [point.length for point in points] * 2
    slow, fast = found.places
    assert slow.actual_ns is None
    assert slow.error_percent is None
    assert found.speedup_error_percent(fast) is None
    assert found.speedup(fast) == 2
    assert fast.name == "h200-sxm (device.sm_count=100)"
    exact = 4000 * 1_000_000 + 5_000 * int(run.length.sum())
    assert fast.projected_ns == pytest.approx(exact, rel=0.01)


def test_all_of_the_run_beside_its_projection() -> None:
    run = run_of([(n,) for n in np.random.default_rng(0).integers(1, 500, 4000)])
    found = replay(chosen(run), target="made", variations=ON, simulate=linear, whole=run)
    exact = 4000 * 1_000_000 + 5_000 * int(run.length.sum())
    assert [place.actual_ns for place in found.places] == [2 * exact, exact]
    assert all(place.error_percent is not None and place.error_percent < 1 for place in found.places)
    assert found.actual_speedup(found.places[1]) == 2
    assert found.speedup_error_percent(found.places[1]) == pytest.approx(0, abs=1e-9)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=60))
def test_taking_every_length_projects_the_run_exactly(lengths: list[tuple[int, int]]) -> None:
    run = run_of(lengths)
    times = run_time_ns(run, device=FAST, simulate=linear)
    assert set(times) == set(lengths)
    if len(times) <= 10:
        found = replay(chosen(run), target="made", variations=ON[1:], simulate=linear, whole=run)
        assert found.places[0].projected_ns == found.places[0].actual_ns


def test_no_device() -> None:
    with pytest.raises(InputError, match="no device"):
        replay([], target="made", variations=[], simulate=linear)


BATCH = Batch(sequences=4, length=1)


def price(batch: Batch) -> int:
    per_token = {Phase.TRAINING: 30, Phase.PREFILL: 10, Phase.DECODE: 1}[batch.phase]
    return batch.sequences * batch.length * per_token


@pytest.mark.parametrize(
    ("names", "length", "expected_ns"),
    [
        (("length",), (7,), 4 * 7 * 30),
        (("length_batch", "length_tokens"), (2, 7), 2 * 7 * 30),
        (("length_tokens", "length_sequences"), (7, 2), 2 * 7 * 30),
        (("length_prefill", "length_decode"), (100, 1), 4 * 100 * 10),
        (("ContextTokens", "GeneratedTokens"), (100, 11), 4 * 100 * 10 + 10 * 4 * 105),
    ],
)
def test_what_an_iteration_is(names: tuple[str, ...], length: Length, expected_ns: int) -> None:
    assert batch_time(names, batch=BATCH, price=price)(length) == expected_ns


def test_all_decoding_steps_together_are_as_long_as_one_by_one() -> None:
    one_by_one = 4 * 100 * 10 + sum(4 * (100 + done) for done in range(1, 300))
    served = batch_time(("prefill", "decode"), batch=BATCH, price=price)((100, 300))
    assert served == pytest.approx(one_by_one, rel=0.001)


def test_requests_are_told_by_their_names() -> None:
    assert is_served(("ContextTokens", "GeneratedTokens"))
    assert not is_served(("GeneratedTokens", "ContextTokens"))
    assert not is_served(("length",))


@pytest.mark.parametrize(
    "names", [("length_source", "length_target"), ("a", "b", "c"), ("decode", "prefill")]
)
def test_lengths_that_mean_nothing_to_a_model(names: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="is called with all of them"):
        batch_time(names, batch=BATCH, price=price)
