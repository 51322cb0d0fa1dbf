"""The chooser of fused operators: never much behind the best way, serial where the others lose, cheap."""

import dataclasses
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conccl.core.errors import InputError
from conccl.core.kinds import DType
from conccl.core.plan import Engine
from conccl.costs.catalogue import load_device
from conccl.strategies.ways import Chunked, Serial, Tracked
from conccl.strategies.ways import way as way_of
from conccl.tune import fused_choice
from conccl.tune.fused_choice import MARGIN, choose, least_ns, simulated_ns
from conccl.tune.fused_problem import Call, Problem
from conccl.tune.fused_table import Row, Table, merged, read_table, write_table

H200 = load_device("h200-sxm")
LARGE = Problem(call=Call.GEMM_REDUCE_SCATTER, m=8192, n=8192, k=3584, world=8)


def exhaustive(problem):
    """Every candidate's simulated time."""
    ways = [Serial(), *fused_choice._candidates(problem, fused_choice.SIMULATED)]
    return {str(one): simulated_ns(problem, one, H200) for one in ways}


@pytest.mark.parametrize(
    "problem",
    [
        dataclasses.replace(LARGE, m=2048),
        dataclasses.replace(LARGE, call=Call.ALL_GATHER_GEMM, world=4),
        dataclasses.replace(LARGE, call=Call.GEMM_ALL_REDUCE, m=384, n=1000, k=777, world=3),
        dataclasses.replace(LARGE, call=Call.GEMM_OFFLOAD, world=1),
        dataclasses.replace(LARGE, call=Call.PREFETCH_GEMM, world=1, m=4097),
        dataclasses.replace(LARGE, m=1024, mover=Engine.COPY_ENGINE),
    ],
    ids=lambda one: f"{one.call.value}-{one.m}",
)
def test_it_finds_the_best_of_all_candidates_without_running_them_all(problem):
    times = exhaustive(problem)
    choice = choose(problem, device=H200)
    best = min(times.values())
    chosen = choice.predicted_ns[str(choice.way)]
    assert chosen <= best * (1 + MARGIN)
    assert chosen <= times["serial"]
    for name, time_ns in choice.predicted_ns.items():
        assert times.get(name, simulated_ns(problem, way_of(name), H200)) == time_ns
    for way in fused_choice._candidates(problem, fused_choice.SIMULATED):
        assert least_ns(problem, way, H200) <= 1.02 * times[str(way)], way  # else it could be passed over


SIZES = st.integers(1, 3000)


@settings(max_examples=25)
@given(
    call=st.sampled_from(Call),
    sizes=st.tuples(SIZES, SIZES, SIZES),
    world=st.integers(1, 8),
    dtype=st.sampled_from([DType.BF16, DType.FP32]),
    mover=st.sampled_from(Engine),
)
def test_every_shape_has_a_way_that_is_not_slower_than_serial(call, sizes, world, dtype, mover):
    m, n, k = sizes
    world = 1 if call in (Call.GEMM_OFFLOAD, Call.PREFETCH_GEMM) else world
    problem = Problem(call=call, m=m, n=n, k=k, world=world, dtype=dtype, mover=mover)
    choice = choose(problem, device=H200)
    if choice.predicted_ns:
        assert choice.predicted_ns[str(choice.way)] <= choice.predicted_ns["serial"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"world": 1}, "one rank: there is nothing to overlap with"),
        ({"m": 256}, "no other way can be faster"),
        ({"k": 64}, "no other way can be faster"),  # nothing to hide behind
        ({"m": 1, "n": 1, "k": 1}, "no other way can be faster"),
        ({"call": Call.GEMM_ALL_REDUCE, "k": 1024}, "would gain only"),
        ({"m": 1024}, "the fastest other way is"),
    ],
)
def test_it_says_serial_where_fusion_loses(change, reason):
    choice = choose(dataclasses.replace(LARGE, **change), device=H200, ways=("serial", "chunked"))
    assert choice.way == Serial()
    assert reason in choice.reason


def test_it_says_what_it_expects():
    choice = choose(LARGE, device=H200, ways=("serial", "chunked"))
    assert isinstance(choice.way, Chunked)
    assert choice.speedup is not None
    assert choice.speedup > 1 + MARGIN
    assert choice.reason.startswith(f"{choice.speedup:.2f}x over serial (simulated; GEMM ")


def test_a_known_call_is_looked_up():
    choose(LARGE, device=H200, ways=("serial", "chunked"))
    began = time.perf_counter()
    for _ in range(100):
        choose(LARGE, device=H200, ways=("serial", "chunked"))
    assert time.perf_counter() - began < 0.1


def test_without_costs_and_measurements_it_is_serial():
    choice = choose(LARGE, device=None)
    assert choice.way == Serial()
    assert "neither costs" in choice.reason


def row(way, us, **changes):
    fields = {"call": LARGE.call, "m": 8192, "n": 8192, "k": 3584, "world": 8, "dtype": DType.BF16, **changes}
    return Row(way=way, ns=us * 1000, **fields)


def test_measurements_decide_where_they_are_near():
    rows = row(Serial(), 900), row(Chunked(chunks=4), 1000), row(Tracked(chunks=8), 700)
    table = Table(device="x", rows=rows)
    choice = choose(LARGE, device=H200, table=table)
    assert (choice.way, choice.is_measured) == (Tracked(chunks=8), True)
    assert choice.reason == "1.29x over serial (measured at 8192x8192x3584)."
    assert choose(LARGE, device=H200, table=table, ways=("serial", "chunked")).way == Serial()
    near = choose(dataclasses.replace(LARGE, m=5000), device=None, table=table)
    assert near.way == Tracked(chunks=8)
    assert near.reason.endswith("(measured at 8192x8192x3584, the nearest shape).")
    for far in ({"m": 4000}, {"world": 4}, {"dtype": DType.FP16}, {"call": Call.GEMM_ALL_REDUCE}):
        assert not choose(dataclasses.replace(LARGE, **far), device=None, table=table).is_measured
    alone = Table(device="x", rows=rows[1:])  # nothing to compare with
    assert not choose(LARGE, device=None, table=alone).is_measured


def test_a_table_survives_its_file(tmp_path):
    table = Table(device="x", rows=(row(Serial(), 900), row(Chunked(chunks=4), 1000, world=2)))
    write_table(tmp_path / "table.json", table)
    assert read_table(tmp_path / "table.json") == table
    newer = Table(device="x", rows=(row(Serial(), 800),))
    assert merged([table, newer]).rows == (newer.rows[0], table.rows[1])
    with pytest.raises(InputError, match="tables of x and of y"):
        merged([table, Table(device="y")])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is no table of fused operators"),
        ('{"schema": "conccl.fused/1"}', "rows is None"),
        ('{"schema": "conccl.fused/1", "rows": [3]}', "row 0 of t.json is 3"),
        (json.dumps({"schema": "conccl.fused/1", "rows": [{"m": 1}]}), "row 0 of t.json has no 'n'"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, text, words):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InputError, match=words):
        read_table(tmp_path / "t.json")
    with pytest.raises(InputError, match="cannot read"):
        read_table(tmp_path / "none.json")


@pytest.mark.parametrize(
    "change", [{"way": "chunked:1"}, {"us": 0}, {"us": "soon"}, {"call": "gemm"}, {"m": 0}]
)
def test_a_row_that_says_nothing_is_refused(tmp_path, change):
    good = {
        "call": "gemm_offload",
        "m": 1,
        "n": 1,
        "k": 1,
        "world": 1,
        "dtype": "bf16",
        "way": "serial",
        "us": 1,
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schema": "conccl.fused/1", "rows": [{**good, **change}]}))
    with pytest.raises(InputError, match=r"row 0 of t\.json|way 'chunked:1'|1 chunks"):
        read_table(path)
