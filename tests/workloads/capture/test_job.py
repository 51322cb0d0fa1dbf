"""Jobs of several GPUs: which collectives run, of how many bytes, where, and what waits for them."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import distributed, nn  # noqa: E402

from conccl.bench.step import busiest, simulate_step  # noqa: E402
from conccl.core.errors import InputError  # noqa: E402
from conccl.core.kinds import CollectiveKind, DType  # noqa: E402
from conccl.core.ops import Collective  # noqa: E402
from conccl.workloads.capture.capture import capture_step  # noqa: E402
from conccl.workloads.capture.target import capture_job  # noqa: E402
from workloads.capture.made_steps import DEVICE, names  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH = 64
RANKS = 8
WEIGHTS = 2 * (WIDTH * WIDTH + WIDTH)
"""Elements of `model`."""


def job(build, *, ranks=RANKS, rank=0):
    def on_gpu():
        with torch.device("cuda"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build()

    return capture_step(on_gpu, device=DEVICE, ranks=ranks, rank=rank)


def model():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))


def trained(network, optimizer=torch.optim.SGD):
    update, x = optimizer(network.parameters(), lr=0.1), torch.randn(32, WIDTH)

    def step():
        update.zero_grad()
        network(x).abs().mean().backward()
        update.step()

    return step


def collectives(step):
    return [call.kernel.op for call in step.kernels if isinstance(call.kernel.op, Collective)]


def kinds_and_bytes(step):
    return [(op.kind, op.nbytes) for op in collectives(step)]


def test_a_program_finds_a_job_of_the_asked_size():
    import os  # noqa: PLC0415

    found = {}

    def build():
        distributed.init_process_group("nccl")
        found.update(
            ranks=distributed.get_world_size(),
            rank=distributed.get_rank(),
            local=int(os.environ["LOCAL_RANK"]),
            backend=distributed.get_backend(),
        )
        return lambda: None

    job(build, ranks=16, rank=11)
    assert found == {"ranks": 16, "rank": 11, "local": 3, "backend": "nccl"}
    assert not distributed.is_initialized()


def test_ddp_reduces_gradients_beside_backward_and_the_optimizer_waits():
    def build():
        torch.cuda.set_device(0)
        return trained(nn.parallel.DistributedDataParallel(model().to(0), device_ids=[0]))

    step = job(build)
    assert kinds_and_bytes(step) == [(CollectiveKind.ALL_REDUCE, 4 * WEIGHTS)]
    assert names(step)["copy_"] == 8  # each gradient into the bucket and back
    reduced = next(i for i, call in enumerate(step.kernels) if isinstance(call.kernel.op, Collective))
    assert step.kernels[reduced].lane != step.kernels[0].lane
    waiting = [i for i, call in enumerate(step.kernels) if reduced in call.after]
    assert waiting == [reduced + 1]


def test_fsdp_gathers_twice_and_scatters_once_a_layer():
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415

    def build():
        network = model()
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in network:
            fully_shard(layer, mp_policy=policy)
        return trained(fully_shard(network, mp_policy=policy))

    step = job(build)
    gathered = [op for op in collectives(step) if op.kind is CollectiveKind.ALL_GATHER]
    scattered = [op for op in collectives(step) if op.kind is CollectiveKind.REDUCE_SCATTER]
    assert [(op.nbytes, op.dtype) for op in gathered] == [(WEIGHTS, DType.BF16)] * 4
    assert [(op.nbytes, op.dtype) for op in scattered] == [(2 * WEIGHTS, DType.FP32)] * 2
    first = next(call for call in step.kernels if call.kernel.op == gathered[0])
    assert first.lane != step.kernels[-1].lane


def test_tensor_parallel_layers_reduce_once_each_way_over_their_own_ranks():
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.tensor.parallel import (  # noqa: PLC0415
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    def build():
        mesh = init_device_mesh("cuda", (2, RANKS), mesh_dim_names=("outer", "inner"))
        network = parallelize_module(model(), mesh["inner"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
        x = torch.randn(32, WIDTH, requires_grad=True)
        replicas = mesh.get_group("outer")

        def step():
            y = network(x)
            y.sum().backward()
            distributed.all_reduce(x.grad, group=replicas)

        return step

    step = job(build, ranks=2 * RANKS)
    inside = Collective(
        kind=CollectiveKind.ALL_REDUCE, nbytes=4 * 32 * WIDTH, ranks=RANKS, dtype=DType.FP32, ranks_per_node=8
    )
    assert collectives(step)[:2] == [inside, inside]
    across = collectives(step)[2]
    assert (across.ranks, across.ranks_per_node) == (2, 1)
    products = [call.kernel.op for call in step.kernels if call.kernel.name in ("mm", "addmm")]
    assert {product.n for product in products} == {WIDTH, WIDTH // RANKS}


def _gathered(x, big):
    distributed.all_gather_into_tensor(big, x)


@pytest.mark.parametrize(
    ("call", "kind", "nbytes"),
    [
        (lambda x, _: distributed.all_reduce(x), "all_reduce", 4096),
        (_gathered, "all_gather", 8 * 4096),
        (lambda x, big: distributed.all_gather(list(big.chunk(8)), x), "all_gather", 8 * 4096),
        (distributed.reduce_scatter_tensor, "reduce_scatter", 8 * 4096),
        (lambda x, _: distributed.all_to_all_single(torch.empty_like(x), x), "all_to_all", 4096),
        (lambda x, _: distributed.broadcast(x, 0), "broadcast", 4096),
        (lambda x, _: distributed.send(x, 1), "send", 4096),
        (lambda x, _: distributed.recv(x, 1), "recv", 4096),
    ],
)
@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_bytes_are_counted_as_nccl_tests_does(call, kind, nbytes):
    def build():
        x, big = torch.zeros(1024), torch.zeros(8 * 1024)
        return lambda: call(x, big)

    assert kinds_and_bytes(job(build)) == [(kind, nbytes)]


def test_objects_of_other_ranks_are_this_rank_s_own_or_refused():
    found = [None] * RANKS

    def build():
        distributed.all_gather_object(found, {"rows": 3})
        with pytest.raises(InputError, match="another rank"):
            distributed.recv_object_list([None], 1)
        return lambda: None

    job(build)
    assert found == [{"rows": 3}] * RANKS


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_an_asynchronous_collective_hides_behind_what_does_not_need_it():
    def build(*, at_once):
        x, out, a = torch.zeros(1 << 22), torch.zeros(8 << 22), torch.randn(8192, 8192, dtype=torch.bfloat16)

        def step():
            work = distributed.all_gather_into_tensor(out, x, async_op=not at_once)
            a @ a
            if not at_once:
                work.wait()
            out.add_(1)

        return step

    exposed = {
        at_once: simulate_step(
            job(lambda at_once=at_once: build(at_once=at_once)), device=DEVICE, gpus=RANKS
        ).exposed_communication_ns
        for at_once in (True, False)
    }
    assert exposed[False] < 0.2 * exposed[True]


def test_functional_collectives_wait_where_their_result_is_used():
    from torch.distributed import _functional_collectives as functional  # noqa: PLC0415

    def build():
        x, a = torch.zeros(1024), torch.randn(64, 64)

        def step():
            y = functional.all_reduce(x, "sum", distributed.group.WORLD)
            a @ a
            return y + 1

        return step

    reduced, product, used = job(build).kernels
    assert isinstance(reduced.kernel.op, Collective)
    assert (product.after, used.after) == ((), (0,))


RING = """
import torch
from torch import distributed

def ring():
    x, rank, ranks = torch.zeros(1 << 20), distributed.get_rank(), distributed.get_world_size()
    work = torch.randn(4096, 4096)

    def step():
        if rank == ranks - 1:
            work @ work
        distributed.send(x, (rank + 1) % ranks)
        distributed.recv(x, (rank - 1) % ranks)

    return step
"""


def test_where_ranks_send_to_each_other_the_busiest_counts(tmp_path):
    (tmp_path / "ring.py").write_text(RING)
    captures = capture_job(f"{tmp_path}/ring.py:ring", (), device=DEVICE, ranks=16)
    assert [len(captured.kernels) for captured in captures] == [2, 2, 3]
    assert "bubble" in captures[0].warnings[0]
    assert busiest(captures, device=DEVICE, gpus=16).kernels == 3
