"""The cases that users of c10d rely on, carried out by conccl and by gloo, outcome for outcome.

A case gets a group and gives what it made of it; an error counts as an outcome too. What gloo refuses is
compared with what the case says that it must be.
"""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from integrations.backend_jobs import with_gloo


def filled(value, *shape, dtype=torch.float32):
    return torch.full(shape, value, dtype=dtype)


def _coalesced_all_reduce(group, rank, count):
    tensors = [filled(rank + one, 3 + one) for one in range(3)]
    dist.all_reduce_coalesced(tensors, group=group)
    return tensors


def _coalesced_all_reduce_max(group, rank, count):
    tensors = [filled(rank, 2, dtype=torch.int32), filled(-rank, 5, dtype=torch.int32)]
    dist.all_reduce_coalesced(tensors, op=ReduceOp.MAX, group=group)
    return tensors


def _coalesced_all_gather(group, rank, count):
    outs = [[torch.zeros(2), torch.zeros(3, 2)] for _ in range(count)]
    dist.all_gather_coalesced(outs, [filled(rank, 2), filled(10 + rank, 3, 2)], group=group)
    return [one for of_rank in outs for one in of_rank]


def _reduce_scatter_base(group, rank, count):
    out = torch.zeros(3)
    dist._reduce_scatter_base(out, torch.arange(3.0 * count) + rank, group=group)
    return [out]


def _all_gather_base(group, rank, count):
    out = torch.zeros(2 * count)
    dist._all_gather_base(out, filled(rank, 2), group=group)
    return [out]


def _stacked_gather(group, rank, count):
    out = torch.zeros(count, 2, 3)
    dist.all_gather_into_tensor(out, filled(rank, 2, 3), group=group)
    return [out]


def _scatter_of_ints(group, rank, count):
    out = torch.zeros(4, dtype=torch.int64)
    given = [filled(one, 4, dtype=torch.int64) for one in range(count)] if rank == 1 else None
    dist.scatter(out, given, src=1, group=group)
    return [out]


def _gather_of_bools(group, rank, count):
    outs = [torch.zeros(3, dtype=torch.bool) for _ in range(count)] if rank == 0 else None
    dist.gather(filled(rank % 2, 3).bool(), outs, dst=0, group=group)
    return outs or []


def _broadcast_of_a_view(group, rank, count):
    base = torch.zeros(4, 6)
    part = base[1:3]
    if rank == 1:
        part.fill_(7)
    dist.broadcast(part, 1, group=group)
    return [base]


def _tags_out_of_order(group, rank, count):
    got = [torch.zeros(2), torch.zeros(2)]
    if rank == 0:
        works = [dist.isend(filled(tag, 2), 1, group=group, tag=tag) for tag in (5, 9)]
        for work in works:
            work.wait()
    elif rank == 1:
        dist.recv(got[0], 0, group=group, tag=9)
        dist.recv(got[1], 0, group=group, tag=5)
    return got


def _from_anyone(group, rank, count):
    got = torch.zeros(1)
    if rank == 0:
        found = []
        for _ in range(count - 1):
            sender = dist.recv(got, group=group)
            found.append((sender, got.item()))
        return [torch.tensor(sorted(found))]
    dist.send(filled(rank, 1), 0, group=group)
    return []


def _batch(group, rank, count):
    right, left = (rank + 1) % count, (rank - 1) % count
    got = [torch.zeros(3), torch.zeros(4, dtype=torch.int32)]
    operations = [
        dist.P2POp(dist.irecv, got[0], left, group=group),
        dist.P2POp(dist.isend, filled(rank, 3), right, group=group),
        dist.P2POp(dist.irecv, got[1], right, group=group),
        dist.P2POp(dist.isend, filled(rank, 4, dtype=torch.int32), left, group=group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return got


def _sizes_of_all_to_all(group, rank, count):
    given = torch.cat([filled(rank * 10 + peer, peer + 1, 2) for peer in range(count)])
    out = torch.zeros((rank + 1) * count, 2)
    dist.all_to_all_single(out, given, [rank + 1] * count, [peer + 1 for peer in range(count)], group=group)
    return [out]


def _works_in_any_order(group, rank, count):
    tensors = [filled(rank + one, 1000) for one in range(6)]
    works = [dist.all_reduce(one, group=group, async_op=True) for one in tensors]
    for work in reversed(works):
        assert work.wait(timedelta(seconds=20))
    return tensors


def _many_outputs(group, rank, count):
    """Outputs that are columns of one tensor: none of them is dense."""
    base = torch.zeros(5, count)
    dist.all_gather(list(base.unbind(1)), filled(rank, 5), group=group)
    return [base]


def _expanded_input(group, rank, count):
    outs = [torch.zeros(3, 4) for _ in range(count)]
    dist.all_gather(outs, filled(rank, 1, 4).expand(3, 4).contiguous(), group=group)
    return outs


def _barriers(group, rank, count):
    for _ in range(20):
        dist.barrier(group=group)
    dist.barrier(group=group, async_op=True).wait()
    return []


def _objects_of_many_sizes(group, rank, count):
    found = [None] * count
    dist.all_gather_object(found, list(range(rank * 100)), group=group)
    return [torch.tensor([len(one) for one in found])]


def _reduce_to_the_last(group, rank, count):
    tensor = torch.arange(4, dtype=torch.int64) + rank
    dist.reduce(tensor, count - 1, ReduceOp.PRODUCT, group=group)
    return [tensor] if rank == count - 1 else []


def _bits(group, rank, count):
    tensors = [torch.tensor([0b0110, 0b1010, rank], dtype=torch.int32) << rank for _ in range(3)]
    for tensor, op in zip(tensors, (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR), strict=True):
        dist.all_reduce(tensor, op, group=group)
    return tensors


def _nothing(group, rank, count):
    tensor = torch.zeros(0, 3)
    dist.all_reduce(tensor, group=group)
    dist.broadcast(tensor, 0, group=group)
    outs = [torch.zeros(0) for _ in range(count)]
    dist.all_gather(outs, torch.zeros(0), group=group)
    return [tensor, *outs]


def _one_number(group, rank, count):
    tensor = torch.tensor(float(rank))
    dist.all_reduce(tensor, group=group)
    return [tensor]


SAME = [
    _coalesced_all_reduce,
    _coalesced_all_reduce_max,
    _coalesced_all_gather,
    _reduce_scatter_base,
    _all_gather_base,
    _stacked_gather,
    _scatter_of_ints,
    _gather_of_bools,
    _broadcast_of_a_view,
    _tags_out_of_order,
    _from_anyone,
    _batch,
    _sizes_of_all_to_all,
    _works_in_any_order,
    _many_outputs,
    _expanded_input,
    _barriers,
    _objects_of_many_sizes,
    _reduce_to_the_last,
    _bits,
    _nothing,
    _one_number,
]


def _wrong_count(group, rank, count):
    dist.all_gather([torch.zeros(2)] * (count + 1), torch.zeros(2), group=group)


def _wrong_shape(group, rank, count):
    dist.all_gather([torch.zeros(3)] * count, torch.zeros(2), group=group)


def _wrong_type(group, rank, count):
    dist.all_gather([torch.zeros(2, dtype=torch.int32)] * count, torch.zeros(2), group=group)


def _to_itself(group, rank, count):
    dist.send(torch.zeros(1), rank, group=group)


def _to_nobody(group, rank, count):
    dist.send(torch.zeros(1), count + 3, group=group)


def _from_nobody(group, rank, count):
    group.recv([torch.zeros(1)], -2, 0)


def _to_itself_by_hand(group, rank, count):
    group.send([torch.zeros(1)], rank, 0)


def _root_outside(group, rank, count):
    dist.broadcast(torch.zeros(1), count + 3, group=group)


def _no_tensor(group, rank, count):
    dist.all_reduce([1, 2], group=group)


def _outputs_of_no_root(group, rank, count):
    dist.gather(torch.zeros(1), [torch.zeros(1)] * count, dst=(rank + 1) % count, group=group)


def _root_without_outputs(group, rank, count):
    dist.gather(torch.zeros(1), None, dst=rank, group=group)


def _sparse(group, rank, count):
    dist.broadcast(torch.eye(2).to_sparse(), 0, group=group)


REFUSED = [
    _wrong_count,
    _wrong_shape,
    _wrong_type,
    _to_itself,
    _to_nobody,
    _from_nobody,
    _to_itself_by_hand,
    _root_outside,
    _no_tensor,
    _outputs_of_no_root,
    _root_without_outputs,
    _sparse,
]
"""Mistakes of every rank alike: both backends tell them to the caller and go on."""


def _outcome(case, group, rank, count):
    try:
        made = case(group, rank, count)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [one.tolist() for one in made or []]


def compared(rank, count, folder):
    """Case -> its outcomes by conccl and by gloo, where they differ."""
    gloo = with_gloo(rank, count, folder)
    different = {}
    for case in SAME:
        ours, theirs = (_outcome(case, group, rank, count) for group in (dist.group.WORLD, gloo))
        if ours != theirs:
            different[case.__name__] = ours, theirs
    dist.barrier()
    dist.destroy_process_group()
    return different


def refused(rank, count, folder):
    """Case -> what conccl says; the group goes on after each."""
    with_gloo(rank, count, folder)
    told = {}
    for case in REFUSED:
        told[case.__name__] = _outcome(case, dist.group.WORLD, rank, count)
        dist.all_reduce(one := torch.ones(1))
        assert one.item() == count, case
    dist.destroy_process_group()
    return told
