"""Contended times for Inductor: what nodes mean, and that PyTorch's scheduler takes the function."""

import inspect

import pytest
import torch
import torch._inductor.config as inductor
import torch.distributed as dist
from torch._inductor.fx_passes import overlap_scheduling
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

from conccl.core.errors import InputError
from conccl.core.kinds import CollectiveKind, DType
from conccl.core.ops import Collective, Gemm
from conccl.costs.catalogue import load_device
from conccl.integrations.inductor import collective_of, contended_times, product_of
from conccl.strategies.heuristics import alone_ns

pytestmark = pytest.mark.torch

RANKS = 4
functional = torch.ops._c10d_functional


@pytest.fixture
def group():
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


def traced(function, *shapes, dtype=torch.bfloat16):
    with FakeTensorMode():
        return make_fx(function)(*(torch.empty(shape, dtype=dtype) for shape in shapes))


def nodes(graph, word):
    return [node for node in graph.graph.nodes if node.op == "call_function" and word in str(node.target)]


def step(group):
    """A gather beside a product, then the product that needs it."""

    def function(shard, x, w):
        whole = functional.all_gather_into_tensor.default(shard, RANKS, group)
        hidden = torch.mm(x, w)
        return torch.mm(hidden, functional.wait_tensor.default(whole))

    return traced(function, (1024, 4096), (2048, 8192), (8192, 4096))


def test_products_have_their_shapes_types_and_batch():
    graph = traced(
        lambda a, b, bias, x, y: (torch.addmm(bias, a, b), torch.bmm(x, y)),
        *((32, 64), (64, 48), (48,), (3, 5, 7), (3, 7, 11)),
    )
    assert product_of(nodes(graph, "addmm")[0]) == Gemm(m=32, n=48, k=64)
    assert product_of(nodes(graph, "bmm")[0]) == Gemm(m=5, n=11, k=7, batch=3)
    wide = traced(torch.mm, (8, 16), (16, 4), dtype=torch.float32)
    assert product_of(nodes(wide, "mm")[0]) == Gemm(m=8, n=4, k=16, dtype=DType.FP32)


def test_collectives_count_their_bytes_as_nccl_tests_does(group):
    def function(x):
        return (
            functional.all_gather_into_tensor.default(x, RANKS, group),
            functional.reduce_scatter_tensor.default(x, "sum", RANKS, group),
            functional.all_reduce.default(x, "sum", group),
        )

    graph = traced(function, (1024, 8))
    nbytes = 1024 * 8 * 2
    for word, kind, whole in (
        ("all_gather", CollectiveKind.ALL_GATHER, nbytes * RANKS),
        ("reduce_scatter", CollectiveKind.REDUCE_SCATTER, nbytes),
        ("all_reduce", CollectiveKind.ALL_REDUCE, nbytes),
    ):
        node = nodes(graph, word)[0]
        assert collective_of(node) == Collective(kind=kind, nbytes=whole, ranks=RANKS)
        assert collective_of(node, nbytes=512).nbytes == 512 * whole // nbytes


def test_contended_times_are_longer_than_isolated_ones_and_come_in_ms(group):
    graph = step(group)
    estimate = contended_times("h200-sxm", gpus=RANKS)
    product = nodes(graph, "mm")[0]
    isolated_ms = alone_ns(product_of(product), load_device("h200-sxm")) / 1e6
    assert 1.02 * isolated_ms < estimate(product, None) < 3 * isolated_ms
    gather = nodes(graph, "all_gather")[0]
    assert estimate(gather, None) > 0
    assert estimate(gather, 1 << 30) > 10 * estimate(gather, None)


def test_what_it_does_not_know_is_left_to_pytorch(group):
    estimate = contended_times("h200-sxm", gpus=RANKS)
    graph = traced(torch.relu, (64, 64))
    assert [estimate(node) for node in graph.graph.nodes] == [None] * len(graph.graph.nodes)


def test_pytorch_calls_it_as_it_is_written(group, monkeypatch):
    """2.11 gives the node alone, later versions also a size; the scheduler's own entry is called for real."""
    signature = inspect.signature(contended_times("h200-sxm", gpus=RANKS))
    signature.bind("node")
    signature.bind("node", None)
    monkeypatch.setattr(overlap_scheduling, "estimate_roofline_runtime_ms", lambda _: 1.0)  # needs a GPU
    seen = []
    estimate = contended_times("h200-sxm", gpus=RANKS)

    def watched(node, override_size=None):
        seen.append((node.target, estimate(node, override_size)))
        return seen[-1][1]

    graph = step(group)
    found = overlap_scheduling.gather_node_runtime_estimations(graph, custom_runtime_estimation=watched)
    by_node = {str(node.target): time_ms for node, time_ms in found.items()}
    assert by_node["aten.mm.default"] in [time_ms for _, time_ms in seen]
    assert any("all_gather" in target for target in by_node)
    with inductor.patch({"aten_distributed_optimizations.custom_runtime_estimation": watched}):
        assert inductor.aten_distributed_optimizations.custom_runtime_estimation is watched


def test_one_gpu_is_refused():
    with pytest.raises(InputError, match="gpus=2"):
        contended_times("h200-sxm", gpus=1)
