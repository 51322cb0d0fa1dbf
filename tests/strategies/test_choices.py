"""Strategies are values: names, numbers, JSON."""

import pytest

from conccl.core.errors import InputError, UnknownNameError
from conccl.core.plan import Engine
from conccl.core.records import from_json_value, to_json_value
from conccl.strategies.choices import (
    NAMES,
    POLICY,
    Chunked,
    Fused,
    Partitioned,
    Path,
    Prioritized,
    Strategy,
    strategy,
)


@pytest.mark.parametrize("name", [*[n for n in NAMES if n != POLICY], "partitioned:32", "fused:64"])
def test_every_named_strategy_round_trips_through_json(name):
    value = strategy(name)
    assert from_json_value(to_json_value(value), Strategy) == value


def test_the_names_are_different_strategies():
    assert len({strategy(name) for name in NAMES if name != POLICY}) == len(NAMES) - 1


def test_a_number_sets_what_the_strategy_has_to_set():
    assert strategy("partitioned:16").sharing == Partitioned(communication_sms=16)
    assert strategy("Prioritized:8").sharing == Prioritized(communication_sms=8)
    assert strategy("chunked:4").granularity == Chunked(count=4)
    assert strategy("fused:4").granularity == Fused(parts=4)
    assert strategy("ce_trimmed:16").trimmed_sms == 16


def test_unknown_names_are_answered_with_near_ones():
    with pytest.raises(UnknownNameError, match="prioritized"):
        strategy("prioritised")


@pytest.mark.parametrize("name", ["serial:3", "partitioned:0", "partitioned:x", "chunked:-1", "partitioned:"])
def test_numbers_that_make_no_sense_are_refused(name):
    with pytest.raises(InputError):
        strategy(name)


def test_copy_engines_have_no_sms_to_partition():
    with pytest.raises(InputError, match="need no SMs"):
        Strategy(engine=Engine.COPY_ENGINE, sharing=Partitioned())


def test_the_vendors_copy_engine_path_differs_from_ours_in_the_path_alone():
    assert strategy("nccl_zero").path is Path.LIBRARY
    assert strategy("ce").path is Path.PLANNED
