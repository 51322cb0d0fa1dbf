"""Measuring collectives with real processes: what is told, what is checked, and what becomes of trouble."""

import multiprocessing
from dataclasses import replace

import pytest
import torch

import ranks
from conccl.bench.collectives import MEASURED, CollectiveRow
from conccl.core.errors import ConcclError, ExecutionError, InputError
from conccl.core.kinds import CollectiveKind
from conccl.integrations.collective_bench.asked import BenchRequest, settled
from conccl.integrations.collective_bench.data import DTYPES, RandomData
from conccl.integrations.collective_bench.launch import started
from conccl.integrations.collective_bench.measure import measured
from integrations import bench_jobs as jobs

pytestmark = pytest.mark.torch

REQUEST = BenchRequest(
    kind=CollectiveKind.ALL_GATHER,
    sizes=(64, 4096, 65536),
    ranks=2,
    backend="conccl",
    iterations=2,
    warmup=1,
    timeout_s=20.0,
)


@pytest.fixture(scope="module")
def context():
    """Processes forked from a server that has imported PyTorch."""
    ranks._start_server()
    return multiprocessing.get_context("forkserver")


def rows_of(request, context, **more):
    _, *rows = measured(request, context=context, **more)
    return rows


@pytest.mark.parametrize("kind", MEASURED)
def test_every_collective_is_right_in_and_out_of_place(kind, context):
    request = replace(
        REQUEST, kind=kind, sizes=(12, 4096), ranks=3, redop="sum" if "reduce" in kind else "", root=1
    )
    for row in rows_of(request, context):
        ways = [one for one in (row.out_of_place, row.in_place) if one is not None]
        assert ways
        assert [one.nwrong for one in ways] == [0] * len(ways)
        assert all(len(one.times_ns) == 2 and min(one.times_ns) > 0 for one in ways)
        assert row.nbytes in (12, 4092, 4096)


@pytest.mark.parametrize(
    ("dtype", "redop"), [("bfloat16", "sum"), ("f8e4m3", "max"), ("half", "avg"), ("int8", "prod")]
)
def test_types_and_reductions(dtype, redop, context):
    request = replace(REQUEST, kind=CollectiveKind.REDUCE_SCATTER, dtype=dtype, redop=redop, sizes=(6000,))
    (row,) = rows_of(request, context)
    assert (row.nwrong, row.dtype, row.redop) == (0, dtype, redop)


def test_gloo_is_measured_alike(context):
    rows = rows_of(replace(REQUEST, backend="gloo"), context)
    assert [row.nbytes for row in rows] == list(REQUEST.sizes)
    assert sum(row.nwrong for row in rows) == 0


def test_a_wrong_element_is_counted(context):
    for row in rows_of(REQUEST, context, work=jobs.wrong_in_one_element):
        assert row.out_of_place.nwrong == 1
        assert row.in_place.nwrong == 1


def test_a_killed_rank_ends_the_sweep_and_leaves_what_was_measured(context):
    rows = []
    with pytest.raises(ExecutionError, match=r"rank 1: killed by SIGKILL; rank 0: rank 1 .process"):
        rows.extend(measured(REQUEST, work=jobs.killed_at_the_third_size, context=context))
    assert [row.nbytes for row in rows if isinstance(row, CollectiveRow)] == [64, 4096]


def test_a_rank_that_does_not_come_is_told_when_the_time_is_up(context):
    request = replace(REQUEST, sizes=(64, 1 << 20), timeout_s=1.0)
    with pytest.raises(ExecutionError, match=r"rank 0: .*waited 1.* s, which is the limit"):
        list(measured(request, work=jobs.late, context=context))


def test_a_rank_that_fails_is_named(context):
    with pytest.raises(ExecutionError, match="rank 1: ValueError: mine"):
        list(started(jobs.one_fails, None, count=2, silence_s=30, context=context))


def test_silence_of_all_is_an_error(context):
    told = started(jobs.silent, None, count=2, silence_s=1.0, context=context)
    assert next(told) == ("here", "here")
    with pytest.raises(ExecutionError, match="no rank has said anything for 1 s"):
        next(told)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"device": "cuda"}, "sees none: .*Use --device cpu"),
        ({"device": "cpu", "backend": "nccl"}, "'nccl' takes CUDA tensors only"),
        ({"device": "cpu", "backend": "mpi"}, "unknown backend 'mpi'"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"transport": "peer"}, "transport 'peer' .* does not exist yet"),
        ({"transport": "nccl"}, "transport 'nccl' .* use --backend nccl --device cuda"),
        ({"transport": "host", "backend": "gloo"}, "--transport host is of backend 'conccl'"),
        ({"transport": "carrier"}, "unknown transport 'carrier'"),
        ({"ranks": 0}, "--nproc 0; give 1 or more"),
    ],
)
def test_what_cannot_be_measured_is_refused(given, words):
    if given.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConcclError, match=words) as caught:
        settled(**({"device": "cpu", "backend": None, "transport": None, "ranks": None} | given))
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_elements_are_random_and_their_sums_exact(dtype):
    data = RandomData(seed=1, dtype=DTYPES[dtype], redop="sum", ranks=3)
    whole = data.piece(0, 0, 5000)
    assert len(set(whole.double().tolist())) >= 2
    assert torch.equal(data.piece(0, 1234, 4321).double(), whole[1234:4321].double())
    assert not torch.equal(data.piece(1, 0, 5000).double(), whole.double())
    total = sum(data.piece(rank, 0, 5000).double() for rank in range(3))
    assert torch.equal(data.reduced(0, 5000).double(), total)
    assert data.wrong(data.reduced(0, 5000), rank=None) == 0
    spoilt = whole.clone()
    spoilt[77] = 1 if whole[77].double() != 1 else 0
    assert data.wrong(spoilt, rank=0) == 1


def test_pieces_beyond_one_generator_agree():
    data = RandomData(seed=2, dtype=torch.int32, redop="", ranks=2)
    around = data.piece(0, (1 << 20) - 5, (1 << 20) + 5)
    assert torch.equal(around[:5], data.piece(0, (1 << 20) - 5, 1 << 20))
    assert torch.equal(around[5:], data.piece(0, 1 << 20, (1 << 20) + 5))
