"""What ranks do in the tests of training: the same steps by the stock path and by ours."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import conccl
from conccl.core.errors import InputError
from conccl.integrations.ddp import allreduce_hook
from conccl.integrations.fsdp import use_conccl

STEPS = 50


def start(rank, count, folder):
    """gloo is the default group, with one of conccl beside it."""
    conccl.register_backend()
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    return dist.new_group(backend="conccl")


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(50, 16)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(16, 50)

    def forward(self, words):
        return self.head(self.encoder(self.embedding(words))) * 1.0  # not a view, of which FSDP2 warns


def losses(model, rank, steps=STEPS):
    """Each rank learns to repeat sequences of its own."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    source = torch.Generator().manual_seed(rank)
    found = []
    for _ in range(steps):
        words = torch.randint(0, 50, (4, 6), generator=source)
        loss = torch.nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def fsdp(rank, count, folder):
    """Losses of the stock path and of ours, and how many calls ours were."""
    group = start(rank, count, folder)
    mesh = init_device_mesh("cpu", (count,))
    found = []
    for ours in (False, True):
        model = Transformer()
        for layer in model.encoder.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        if ours:
            assert use_conccl(model, group=group) == 3
        found.append(losses(model, rank))
    calls = group._get_sequence_number_for_group()
    dist.destroy_process_group()
    return *found, calls


def fsdp_alone(rank, count, folder):
    """FSDP2 on a mesh whose backend is conccl, with nothing set."""
    conccl.register_backend()
    dist.init_process_group("conccl", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    model = Transformer()
    fully_shard(model, mesh=init_device_mesh("cpu", (count,)))
    found = losses(model, rank, 5)
    dist.destroy_process_group()
    return found


def ddp(rank, count, folder):
    group = start(rank, count, folder)
    stock = losses(DistributedDataParallel(Transformer()), rank)
    hooked = DistributedDataParallel(Transformer())
    hooked.register_comm_hook(group, allreduce_hook)
    by_hook = losses(hooked, rank)
    by_backend = losses(DistributedDataParallel(Transformer(), process_group=group), rank)
    dist.destroy_process_group()
    return stock, by_hook, by_backend


def functions(rank, count, folder):
    """Every function once, complete and asynchronous."""
    group = start(rank, count, folder)
    for more in ({}, {"async_op": True}):
        more["group"] = group

        def run(function, *args, more=more, **options):
            work = function(*args, **options, **more)
            assert (work is None) == ("async_op" not in more)
            if work is not None:
                work.wait()

        x = torch.full((2,), float(rank))
        out = torch.zeros(2 * count)
        run(conccl.all_gather, out, x)
        assert out.tolist() == [float(r) for r in range(count) for _ in range(2)]
        outs = [torch.zeros(2) for _ in range(count)]
        run(conccl.all_gather, outs, x)
        assert torch.equal(torch.cat(outs), out)
        total = torch.zeros(2)
        run(conccl.reduce_scatter, total, out)
        assert (total == rank * count).all()
        run(conccl.reduce_scatter, total, list(out.chunk(count)), op=dist.ReduceOp.MAX)
        assert (total == rank).all()
        run(conccl.all_reduce, y := x.clone())
        assert (y == sum(range(count))).all()
        run(conccl.all_to_all, z := torch.zeros(count), torch.arange(float(count)) + 10 * rank)
        assert z.tolist() == [10.0 * r + rank for r in range(count)]
        run(conccl.all_to_all, outs := [torch.zeros(1) for _ in range(count)], [x[:1]] * count)
        assert [one.item() for one in outs] == list(range(count))
        run(
            conccl.all_to_all,
            z := torch.zeros(count * (rank + 1)),
            torch.ones(sum(range(count + 1))),
            output_split_sizes=[rank + 1] * count,
            input_split_sizes=[one + 1 for one in range(count)],
        )
        assert (z == 1).all()
        run(conccl.broadcast, y := x.clone(), root=1)
        assert (y == 1).all()
        run(conccl.reduce, y := x.clone(), root=1)
        assert (y == (sum(range(count)) if rank == 1 else rank)).all()
        outs = [torch.zeros(2) for _ in range(count)] if rank == 1 else None
        run(conccl.gather, outs, x, root=1)
        assert rank != 1 or [one[0].item() for one in outs] == list(range(count))
        run(conccl.scatter, y, [torch.full((2,), 5.0 + r) for r in range(count)] if rank == 0 else None)
        assert (y == 5 + rank).all()
        if rank == 0:
            run(conccl.send, x, to=1, tag=3)
            run(conccl.send, x, to=1)
        elif rank == 1:
            run(conccl.recv, y, source=0, tag=3)
            assert (y == 0).all()
            run(conccl.recv, y)
        run(conccl.barrier)
    try:
        conccl.all_reduce(x)
    except InputError as error:
        told = str(error)
    dist.destroy_process_group()
    return told
