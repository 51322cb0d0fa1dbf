"""A job of several GPUs as its first rank sees it: torch.distributed with a group in which nothing moves."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import distributed
from torch.nn import parallel

from conccl.core.errors import InputError

_C10D: Any = distributed
_DDP: Any = parallel.distributed

RENDEZVOUS = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@contextlib.contextmanager
def job(*, ranks: int, per_node: int, rank: int = 0) -> Iterator[None]:
    """torch.distributed has so many ranks meanwhile; of one, it is there for programs that initialise it."""
    if not distributed.is_available() or distributed.is_initialized():
        yield
        return
    environment = RENDEZVOUS | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % per_node),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(min(ranks, per_node)),
        "GROUP_RANK": str(rank // per_node),
    }
    with contextlib.ExitStack() as stack:
        begin = _beginning(distributed.init_process_group, ranks=ranks, rank=rank)
        stack.callback(_end, distributed.destroy_process_group)
        if ranks > 1:
            stack.enter_context(mock.patch.dict(os.environ, environment))
            begin()
        for name, answer in _answers(begin).items():
            for module in (distributed, distributed.distributed_c10d):
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, answer))
        stack.enter_context(
            mock.patch.object(_DDP, "_verify_param_shape_across_processes", return_value=None)
        )
        ddp = parallel.DistributedDataParallel
        stack.enter_context(mock.patch.object(ddp, "_pre_forward", _reducing(ddp._pre_forward)))
        yield


def _reducing(pre_forward: Any) -> Any:
    """DDP's own reduction of buckets, as a hook: the group in which nothing moves has no futures for it."""

    def run(model: Any, *args: Any, **kwargs: Any) -> Any:
        if not model._comm_hooks:
            in_place = model.gradient_as_bucket_view
            model.register_comm_hook(model.process_group, _averaging if in_place else _summing)
        return pre_forward(model, *args, **kwargs)

    return run


def _summing(group: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Gradients were copied into the bucket, which PyTorch does by the kernel that divides them."""
    distributed.all_reduce(bucket.buffer(), group=group, async_op=True)
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def _averaging(group: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Gradients lie in the bucket and are divided there, one by one."""
    for gradient in bucket.gradients():
        gradient.div_(group.size())
    return _summing(group, bucket)


for _hook in (_summing, _averaging):  # DDP compares annotations with classes, and these are strings here
    _hook.__annotations__ |= {"bucket": _C10D.GradBucket, "return": torch.futures.Future[torch.Tensor]}


def _answers(begin: Any) -> dict[str, Any]:
    new_group = distributed.new_group

    def group(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("backend", None)
        kwargs.pop("pg_options", None)
        return new_group(*args[:2], **kwargs)

    return {
        "init_process_group": begin,
        "destroy_process_group": lambda *_, **__: None,
        "is_nccl_available": lambda: True,
        "get_backend": lambda *_: "nccl",
        "new_group": group,
        **_OBJECTS,
    }


def _all_gather_object(found: list[Any], own: Any, *_: Any, **__: Any) -> None:
    """Ranks are taken to have the same."""
    found[:] = [own] * len(found)


def _gather_object(own: Any, found: list[Any] | None = None, *_: Any, **__: Any) -> None:
    if found is not None:
        found[:] = [own] * len(found)


def _scatter_object_list(found: list[Any], given: list[Any] | None = None, *_: Any, **__: Any) -> None:
    if given:
        found[0] = given[0]


def _recv_object_list(*_: Any, **__: Any) -> None:
    raise InputError(
        "An object from another rank was waited for, and one rank alone is run here."
        " torch.distributed.pipelining does so to learn shapes: simulate one stage, or send tensors."
    )


_OBJECTS = {
    "all_gather_object": _all_gather_object,
    "gather_object": _gather_object,
    "scatter_object_list": _scatter_object_list,
    "broadcast_object_list": lambda *_, **__: None,
    "send_object_list": lambda *_, **__: None,
    "recv_object_list": _recv_object_list,
}
"""Python objects among ranks: nothing on the GPU that counts, and values that code goes on with."""


def _beginning(original: Any, *, ranks: int, rank: int) -> Any:
    """The program's call finds everything there, or is given a group of the job's size."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415 (registers its backend)

    def begin(*_: Any, **__: Any) -> None:
        if not distributed.is_initialized():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                original("fake", store=FakeStore(), rank=rank, world_size=ranks)

    return begin


def _end(destroy: Any) -> None:
    if distributed.is_initialized():
        destroy()
