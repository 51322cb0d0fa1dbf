"""What ranks do in the tests of the backend: the same calls of conccl and of gloo, results compared."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from conccl.core.errors import ConcclError
from conccl.integrations.process_group import BackendOptions
from conccl.integrations.register import register_backend


def start(rank, count, folder, backend="conccl", **more):
    register_backend()
    dist.init_process_group(
        backend, init_method=f"file://{folder}/store", rank=rank, world_size=count, **more
    )


def with_gloo(rank, count, folder, **more):
    """The default group, and one of gloo with the same ranks."""
    start(rank, count, folder, **more)
    return dist.new_group(backend="gloo")


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.int16,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]
OPS = [
    ReduceOp.SUM,
    ReduceOp.PRODUCT,
    ReduceOp.MIN,
    ReduceOp.MAX,
    ReduceOp.BAND,
    ReduceOp.BOR,
    ReduceOp.BXOR,
    ReduceOp.AVG,
]
SHAPES = [(), (0,), (5, 7), (1000,), (2, 0, 3)]


def values(shape, dtype, seed):
    """Small whole numbers: sums and products are exact in every type, whatever the order."""
    source = torch.Generator().manual_seed(seed)
    one = torch.randint(0, 3, shape, generator=source)
    return one.to(dtype)


def same(one, other):
    """Bitwise, or nearly for averages."""
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert torch.equal(
        one.contiguous().view(torch.uint8) if one.dim() else one.reshape(1).view(torch.uint8),
        other.contiguous().view(torch.uint8) if other.dim() else other.reshape(1).view(torch.uint8),
    ), (one, other)


def moves(rank, count, folder):
    """Every collective that only moves, of every type and odd shapes, against the definition."""
    start(rank, count, folder)
    done = 0
    for (shape, dtype), seed in zip(itertools.product(SHAPES, DTYPES), itertools.count(), strict=False):
        mine = [values(shape, dtype, seed * 100 + one) for one in range(count)]
        outs = [torch.zeros(shape, dtype=dtype) for _ in range(count)]
        dist.all_gather(outs, mine[rank])
        for one, want in zip(outs, mine, strict=True):
            same(one, want)
        root = seed % count
        got = mine[rank].clone()
        dist.broadcast(got, root)
        same(got, mine[root])
        outs = [torch.zeros(shape, dtype=dtype) for _ in range(count)]
        dist.gather(mine[rank], outs if rank == root else None, dst=root)
        if rank == root:
            for one, want in zip(outs, mine, strict=True):
                same(one, want)
        got = torch.zeros(shape, dtype=dtype)
        dist.scatter(got, mine if rank == root else None, src=root)
        same(got, mine[rank])
        sent = [values(shape, dtype, seed * 1000 + rank * 10 + one) for one in range(count)]
        outs = [torch.zeros(shape, dtype=dtype) for _ in range(count)]
        dist.all_to_all(outs, sent)
        for one, got in enumerate(outs):
            same(got, values(shape, dtype, seed * 1000 + one * 10 + rank))
        if count > 1:
            right, left = (rank + 1) % count, (rank - 1) % count
            work = dist.isend(mine[rank], right, tag=seed)
            got = torch.zeros(shape, dtype=dtype)
            dist.recv(got, left, tag=seed)
            work.wait()
            same(got, mine[left])
        done += 1
    dist.destroy_process_group()
    return done


def reductions(rank, count, folder):
    """Every reducing collective, type and operation, against gloo where gloo can, else the definition."""
    gloo = with_gloo(rank, count, folder)
    compared, refused = 0, set()
    for (dtype, op), seed in zip(itertools.product(DTYPES, OPS), itertools.count(), strict=False):
        mine = [values((7,), dtype, seed * 100 + one) for one in range(count)]
        got = mine[rank].clone()
        try:
            dist.all_reduce(got, op)
        except (ValueError, ConcclError) as error:
            refused.add((str(dtype), op.name, type(error).__name__))
            continue
        want = mine[rank].clone()
        if dtype is torch.bool:  # gloo adds them as bytes: two that are true make one that is 2
            want = _definition(mine, op)
        else:
            try:
                dist.all_reduce(want, op, group=gloo)
            except RuntimeError:  # gloo does not have it
                want = _definition(mine, op)
        same(got, want)
        root = seed % count
        got = mine[rank].clone()
        if not dtype.is_complex:
            dist.reduce(got, root, op)
            same(got, want if rank == root else mine[rank])
            blocks = [values((3,), dtype, seed * 1000 + rank * 10 + one) for one in range(count)]
            got = torch.zeros(3, dtype=dtype)
            dist.reduce_scatter(got, blocks, op)
            column = [values((3,), dtype, seed * 1000 + one * 10 + rank) for one in range(count)]
            same(got, _definition(column, op))
        compared += 1
    dist.destroy_process_group()
    return compared, sorted(refused)


def _definition(values, op):
    dtype = values[0].dtype
    if op is ReduceOp.AVG and dtype.is_complex:
        return (sum(one.to(torch.complex128) for one in values) / len(values)).to(dtype)
    if dtype is torch.bool:
        stacked = torch.stack(values)
        if op is ReduceOp.BXOR:
            return stacked.sum(0) % 2 == 1
        some = op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.BOR)
        return stacked.any(0) if some else stacked.all(0)
    wide = [one.to(torch.float64) for one in values]
    stacked = torch.stack(wide)
    result = {
        ReduceOp.SUM: lambda: stacked.sum(0),
        ReduceOp.AVG: lambda: stacked.sum(0) / len(values),
        ReduceOp.PRODUCT: lambda: stacked.prod(0),
        ReduceOp.MIN: lambda: stacked.amin(0),
        ReduceOp.MAX: lambda: stacked.amax(0),
        ReduceOp.BAND: lambda: _fold(values, torch.bitwise_and),
        ReduceOp.BOR: lambda: _fold(values, torch.bitwise_or),
        ReduceOp.BXOR: lambda: _fold(values, torch.bitwise_xor),
    }[op]()
    if not dtype.is_floating_point and result.is_floating_point():
        result = result.trunc()
    if op is ReduceOp.AVG and dtype is torch.float32:
        return (stacked.sum(0).float() / len(values)).to(dtype)
    if op is ReduceOp.AVG and dtype in (torch.float16, torch.bfloat16):
        return (stacked.sum(0).float() / len(values)).to(dtype)
    if op is ReduceOp.AVG and dtype.itemsize == 1 and dtype.is_floating_point:
        return (stacked.sum(0).float() / len(values)).to(dtype)
    return result.to(dtype)


def _fold(values, function):
    total = values[0]
    for one in values[1:]:
        total = function(total, one)
    return total


def against_gloo(rank, count, folder, number, seed):
    """Random calls with random floats: moved bytes bitwise as gloo's, sums within rounding."""
    gloo = with_gloo(rank, count, folder)
    source = random.Random(seed)
    for step in range(number):
        generator = torch.Generator().manual_seed(seed * 1000 + step * 17 + rank)
        numel = source.choice([1, 5, 1024, source.randrange(1, 200_000)])
        kind = source.choice(
            ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"]
        )
        dtype = source.choice([torch.float32, torch.float32, torch.bfloat16])
        root = source.randrange(count)
        asynchronous = source.random() < 0.3
        tensor = torch.randn(
            numel * (count if kind in ("reduce_scatter", "all_to_all") else 1), generator=generator
        ).to(dtype)
        one, other = (_call(kind, tensor.clone(), numel, root, group, asynchronous) for group in (None, gloo))
        if kind in ("all_gather", "all_to_all", "broadcast"):
            same(one, other)
        elif kind != "reduce" or rank == root:
            tolerance = 1e-5 if dtype is torch.float32 else 3e-2
            torch.testing.assert_close(one.float(), other.float(), rtol=tolerance, atol=tolerance)
    dist.destroy_process_group()
    return number


def _call(kind, tensor, numel, root, group, asynchronous):
    count = dist.get_world_size()
    out = tensor
    if kind == "all_reduce":
        work = dist.all_reduce(tensor, group=group, async_op=asynchronous)
    elif kind == "broadcast":
        work = dist.broadcast(tensor, root, group=group, async_op=asynchronous)
    elif kind == "reduce":
        work = dist.reduce(tensor, root, group=group, async_op=asynchronous)
    elif kind == "all_gather":
        outs = list(torch.zeros(count, numel, dtype=tensor.dtype).unbind())
        work = dist.all_gather(outs, tensor, group=group, async_op=asynchronous)
        if work:
            work.wait()
        return torch.stack(outs)
    elif kind == "reduce_scatter":
        out = torch.zeros(numel, dtype=tensor.dtype)
        work = dist.reduce_scatter(out, list(tensor.chunk(count)), group=group, async_op=asynchronous)
    else:
        out = torch.zeros_like(tensor)
        work = dist.all_to_all_single(out, tensor, group=group, async_op=asynchronous)
    if work:
        work.wait()
    return out


def _gather_single():
    return getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def _scatter_single():
    return getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def single_tensors(rank, count, folder):
    """all_gather and reduce_scatter of one tensor: out of place, in place, flat and stacked."""
    start(rank, count, folder)
    gather, scatter = _gather_single(), _scatter_single()
    for shape in ((), (4,), (3, 5)):
        mine = torch.full(shape, float(rank + 1))
        out = torch.zeros(count, *shape)
        gather(out, mine)
        for one in range(count):
            assert (out[one] == one + 1).all()
        whole = torch.zeros(count, *shape)
        whole[rank] = rank + 1
        gather(whole, whole[rank])  # in place
        assert torch.equal(whole, out)
        total = torch.zeros(shape)
        scatter(total, out.clone())
        assert (total == (rank + 1) * count).all()
        own = out.clone()
        scatter(own[rank], own)  # in place
        assert (own[rank] == (rank + 1) * count).all()
    shared = torch.arange(float(count * 3))
    result = shared[:3]  # overlaps another rank's block, unless it is rank 0's
    want = shared.clone()
    scatter(result, shared)
    assert torch.equal(result, want[rank * 3 : rank * 3 + 3] * count)
    dist.destroy_process_group()
    return True


def uneven(rank, count, folder):
    start(rank, count, folder)
    sizes = [3 * one + 1 for one in range(count)]
    outs = [torch.zeros(size) for size in sizes]
    dist.all_gather(outs, torch.full((sizes[rank],), float(rank)))
    assert all((one == number).all() for number, one in enumerate(outs))
    blocks = [torch.full((size,), float(rank + number)) for number, size in enumerate(sizes)]
    out = torch.zeros(sizes[rank])
    dist.reduce_scatter(out, blocks)
    assert (out == sum(range(count)) + count * rank).all()
    given = [(rank + one) % 3 for one in range(count)]
    got = [(rank + one) % 3 for one in range(count)]
    sent = torch.cat([torch.full((size, 2), 10.0 * rank + one) for one, size in enumerate(given)])
    out = torch.zeros(sum(got), 2)
    dist.all_to_all_single(out, sent, got, given)
    want = torch.cat([torch.full((size, 2), 10.0 * one + rank) for one, size in enumerate(got)])
    assert torch.equal(out, want)
    nothing = torch.zeros(0)
    dist.all_to_all_single(nothing, torch.zeros(0), [0] * count, [0] * count)
    dist.destroy_process_group()
    return True


def not_contiguous(rank, count, folder):
    start(rank, count, folder)
    base = torch.arange(12.0).reshape(3, 4) + rank
    turned = base.t()
    dist.all_reduce(turned)
    assert torch.equal(base, torch.arange(12.0).reshape(3, 4) * count + sum(range(count)))
    column = torch.zeros(4, 3)[:, 1]
    dist.broadcast(column if rank else torch.arange(8.0)[::2], 0)
    assert torch.equal(column, torch.arange(8.0)[::2]) or rank == 0
    outs = [torch.zeros(2, 3).t() for _ in range(count)]
    dist.all_gather(outs, torch.full((3, 2), float(rank)))
    assert all((one == number).all() for number, one in enumerate(outs))
    complex_ = torch.full((3,), 1 + 2j) * (rank + 1)
    dist.broadcast(conjugate := complex_.conj().clone(), 0)
    assert torch.equal(conjugate, torch.full((3,), 1 - 2j))
    pictures = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    want = pictures.clone()
    dist.all_reduce(pictures, ReduceOp.MAX)
    dist.broadcast(pictures, 0)
    assert pictures.is_contiguous(memory_format=torch.channels_last)
    assert pictures.shape == want.shape
    if rank == 0:
        dist.send(torch.arange(8.0)[::2], 1)
    elif rank == 1:
        target = torch.zeros(4, 2)[:, 0]
        dist.recv(target, 0)
        assert target.tolist() == [0.0, 2.0, 4.0, 6.0]
    dist.destroy_process_group()
    return True


def objects(rank, count, folder):
    start(rank, count, folder)
    gathered = [None] * count
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * 1000 * rank})
    assert [one["rank"] for one in gathered] == list(range(count))
    some = [None] * count if rank == 1 else None
    dist.gather_object(("from", rank), some, dst=1)
    assert rank != 1 or some == [("from", one) for one in range(count)]
    listed = ["a", 5, None] if rank == 0 else [None] * 3
    dist.broadcast_object_list(listed, src=0)
    assert listed == ["a", 5, None]
    got = [None]
    dist.scatter_object_list(got, [f"for {one}" for one in range(count)] if rank == 0 else None, src=0)
    assert got == [f"for {rank}"]
    if rank == 0:
        dist.send_object_list([{"k": 1}], 1)
    elif rank == 1:
        received = [None]
        dist.recv_object_list(received, 0)
        assert received == [{"k": 1}]
    dist.destroy_process_group()
    return True


def groups(rank, count, folder):
    """Subgroups, also overlapping, from the default group and by the mesh; destroyed and made again."""
    start(rank, count, folder)
    evens = dist.new_group([one for one in range(count) if one % 2 == 0], group_desc="the even ranks")
    firsts = dist.new_group([0, 1])
    mine, _ = dist.new_subgroups(group_size=2)
    if rank % 2 == 0:
        x = torch.ones(1)
        dist.all_reduce(x, group=evens)
        assert x.item() == (count + 1) // 2
        assert dist.get_backend(evens) == "conccl"
    if rank < 2:
        x = torch.full((2,), float(rank))
        dist.broadcast(x, 1, group=firsts)
        assert x.tolist() == [1.0, 1.0]
    x = torch.ones(1)
    dist.all_reduce(x, group=mine)
    assert x.item() == 2
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, count // 2), mesh_dim_names=("a", "b"))
    x = torch.full((1,), float(rank))
    dist.all_reduce(x, group=mesh.get_group("a"))
    assert x.item() == 2 * (rank % (count // 2)) + count // 2
    dist.destroy_process_group(mine)
    dist.barrier()
    dist.destroy_process_group()
    for number in range(3):
        dist.init_process_group(
            "cpu:conccl", init_method=f"file://{folder}/{number}", rank=rank, world_size=count
        )
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == count
        dist.destroy_process_group()
    return True


def coalesced(rank, count, folder):
    start(rank, count, folder)
    manager = dist.distributed_c10d._coalescing_manager
    tensors = [torch.full((size,), float(rank)) for size in (1, 100, 5)]
    with manager():
        for one in tensors:
            dist.all_reduce(one)
    assert all((one == sum(range(count))).all() for one in tensors)
    with manager(async_ops=True) as works:
        outs = [torch.zeros(count * 3) for _ in range(2)]
        for one in outs:
            _gather_single()(one, torch.full((3,), float(rank)))
    works.wait()
    assert all(one.tolist() == [float(r) for r in range(count) for _ in range(3)] for one in outs)
    with manager():
        sums = [torch.zeros(2) for _ in range(2)]
        for one in sums:
            _scatter_single()(one, torch.ones(2 * count))
    assert all((one == count).all() for one in sums)
    with manager(device=torch.device("cpu")):
        dist.broadcast(x := torch.full((2,), float(rank)), 1)
    assert x.tolist() == [1.0, 1.0]
    sent, got = torch.full((70_000,), float(rank)), torch.zeros(70_000)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, got, (rank - 1) % count),
            dist.P2POp(dist.isend, sent, (rank + 1) % count),
        ]
    )
    for work in works:
        work.wait()
    assert (got == (rank - 1) % count).all()
    dist.destroy_process_group()
    return True


def asynchronous(rank, count, folder):
    """Works: waiting, futures, callbacks, order, errors; memory that the caller drops lives on."""
    start(rank, count, folder)
    works = [dist.all_reduce(torch.full((50_000,), float(one)), async_op=True) for one in range(20)]
    for one, work in enumerate(works):
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
        assert work.result()[0][0].item() == one * count
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    assert doubled.wait().tolist() == [2.0 * count] * 3
    done = dist.all_reduce(torch.ones(3), async_op=True)
    done.wait()
    assert done.get_future().wait()[0].tolist() == [count] * 3
    queued = dist.broadcast(x := torch.full((1000,), float(rank)), 0, async_op=True)
    dist.all_reduce(x)  # issued after: sees the broadcast's result
    queued.wait()
    assert (x == 0).all()
    work = dist.barrier(async_op=True)
    work.wait()
    if rank == 0:
        got = torch.zeros(1)
        assert dist.recv(got) == got.item() == 1  # from anyone
    elif rank == 1:
        dist.send(torch.ones(1), 0)
    dist.destroy_process_group()
    return True


def plain_calls(rank, count, folder):
    """A process group called by people: tensors and operations instead of lists and options."""
    start(rank, count, folder)
    group = dist.group.WORLD
    x = torch.full((2,), float(rank))
    group.allreduce(x, ReduceOp.MAX).wait()
    assert x.tolist() == [count - 1.0] * 2
    group.broadcast(x := torch.full((2,), float(rank)), root=1).wait()
    assert x.tolist() == [1.0, 1.0]
    outs = [torch.zeros(1) for _ in range(count)]
    group.allgather(outs, torch.full((1,), float(rank))).wait()
    assert [one.item() for one in outs] == list(range(count))
    group.barrier().wait()
    group.reduce(y := torch.ones(2), root=0, op=ReduceOp.SUM).wait()
    assert rank or y.tolist() == [count] * 2
    group.reduce_scatter(z := torch.zeros(1), [torch.ones(1)] * count, op=ReduceOp.SUM).wait()
    assert z.item() == count
    group.monitored_barrier(timedelta(seconds=5))
    assert group.name() == "conccl"
    assert group.rank() == rank
    assert group.size() == count
    assert group._get_sequence_number_for_group() > 5
    told = str(group.explain("all_gather", 12 << 20))
    assert str(group.explain("all_gather", 64 << 20)).startswith("host: direct (large: bytes are copied once")
    dist.destroy_process_group()
    return told


def functional(rank, count, folder):
    """Functional collectives and DTensors, which call the group from C++."""
    from torch.distributed import _functional_collectives as funcol  # noqa: PLC0415 (takes seconds)
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor  # noqa: PLC0415

    start(rank, count, folder)
    group = dist.group.WORLD
    x = torch.full((4,), float(rank))
    assert (funcol.all_reduce(x, "sum", group) == sum(range(count))).all()
    gather = getattr(funcol, "all_gather_single", None) or funcol.all_gather_tensor
    assert gather(x, 0, group).tolist() == [float(r) for r in range(count) for _ in range(4)]
    wide = torch.ones(4 * count)
    scatter = getattr(funcol, "reduce_scatter_single", None) or funcol.reduce_scatter_tensor
    assert (scatter(wide, "sum", 0, group) == count).all()
    exchanged = funcol.all_to_all_single(torch.full((count,), float(rank)), None, None, group)
    assert exchanged.tolist() == list(range(count))
    assert funcol.broadcast(x, 1, group).tolist() == [1.0] * 4
    mesh = init_device_mesh("cpu", (count,))
    whole = torch.arange(float(count * 6)).reshape(count * 2, 3)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    product = DTensor.from_local(torch.eye(3), mesh, [Replicate()])
    assert torch.equal((sharded @ product).full_tensor(), whole)
    dist.destroy_process_group()
    return True


def refusals(rank, count, folder):
    """What is not supported, and mistakes, told before anything is sent: the group goes on."""
    start(rank, count, folder)
    told = []

    def tell(run):
        try:
            run()
        except (ConcclError, ValueError, RuntimeError, TypeError) as error:
            told.append(f"{type(error).__name__}: {error}")
        else:
            told.append("nothing")

    tell(lambda: dist.all_reduce(torch.ones(2).to_sparse()))
    tell(lambda: dist.all_reduce(torch.ones(2, device="meta")))
    tell(lambda: _gather_single()(torch.zeros(3), torch.zeros(2)))
    tell(lambda: _scatter_single()(torch.zeros(3), torch.zeros(2)))
    tell(lambda: dist.group.WORLD.allgather([[torch.zeros(2)] * count], [torch.zeros(2, dtype=torch.int64)]))
    tell(lambda: dist.all_to_all_single(torch.zeros(count + 1), torch.zeros(count + 1)))
    tell(lambda: dist.all_to_all_single(torch.zeros(count), torch.zeros(count), [1] * count, [2] * count))
    tell(lambda: dist.all_reduce(torch.ones(2), ReduceOp.BAND))
    tell(lambda: dist.group.WORLD._get_backend(torch.device("cuda")))
    dist.barrier()
    group = dist.group.WORLD
    dist.destroy_process_group()
    tell(lambda: group.allreduce([torch.ones(1)]))
    tell(lambda: group.send([torch.ones(1)], 0))
    return told


def options(rank, count, folder, algorithms, slot_nbytes):
    start(
        rank,
        count,
        folder,
        pg_options=BackendOptions(algorithms=algorithms, slot_nbytes=slot_nbytes, strict=True),
    )
    told = str(dist.group.WORLD.explain("all_reduce", 1 << 20))
    x = torch.arange(100_000.0) + rank
    dist.all_reduce(x)
    want = torch.arange(100_000.0) * count + sum(range(count))
    assert torch.equal(x, want)
    dist.destroy_process_group()
    return told


def trouble(rank, count, folder, what):
    """Rank 1 does something else, or nothing more; what the others are told, and how soon."""
    start(rank, count, folder, timeout=timedelta(seconds=1.5 if what == "sleeps" else 20))
    dist.barrier()
    began = time.monotonic()
    try:
        if rank == 1:
            if what == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "sleeps":
                time.sleep(3)
            if what == "raises":
                raise ValueError("mine")
            if what == "other":
                dist.all_reduce(torch.ones(5))
            else:
                dist.barrier()
        else:
            work = dist.all_reduce(torch.ones(4), async_op=True)
            work.wait()
    except RuntimeError as error:
        told = f"{type(error).__name__}: {error}"
        took = time.monotonic() - began
        again = ""
        try:
            dist.all_reduce(torch.ones(4))
        except RuntimeError as second:
            again = f"{type(second).__name__}: {second}"
        dist.destroy_process_group()
        return told, took, again
    return "nothing", time.monotonic() - began, ""


def abort(rank, count, folder):
    start(rank, count, folder)
    dist.barrier()
    if rank == 0:
        time.sleep(0.1)
        dist.group.WORLD.abort()
    try:
        dist.all_reduce(torch.ones(4)) if rank else dist.barrier()
    except RuntimeError as error:
        told = str(error)
    dist.destroy_process_group()
    start(rank, count, f"{folder}/again")
    dist.all_reduce(x := torch.ones(1))
    dist.destroy_process_group()
    return told, x.item()


def destroyed_under_way(rank, count, folder):
    """Calls that were issued are carried out before the group is left."""
    start(rank, count, folder)
    x = torch.full((300_000,), float(rank))
    work = dist.all_reduce(x, async_op=True)
    dist.destroy_process_group()
    assert work.is_completed()
    return x[0].item()


def threads_and_groups(rank, count, folder):
    """Two groups in use by two threads at once."""
    start(rank, count, folder)
    other = dist.new_group()
    failures = []

    def use(group, base):
        try:
            for step in range(100):
                x = torch.full((500,), float(base + step))
                dist.all_reduce(x, group=group)
                assert (x == count * (base + step)).all()
        except BaseException as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=use, args=pair) for pair in ((None, 0), (other, 1000))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    dist.destroy_process_group()
    return failures
