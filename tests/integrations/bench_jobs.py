"""What ranks do in the tests of the bench instead of measuring, or with faults of their own."""

from __future__ import annotations

import os
import signal
import time

import torch.distributed as dist

from conccl.integrations.collective_bench import rank as ranks
from conccl.integrations.collective_bench.rank import measure_as


def killed_at_the_third_size(rank, request, store, tell):
    """Rank 1 is killed once it has told two sizes."""
    told = 0

    def count(what):
        nonlocal told
        tell(what)
        told += what is not None
        if rank == 1 and told == 3:  # a hello and two sizes
            os.kill(os.getpid(), signal.SIGKILL)

    measure_as(rank, request, store, count)


def wrong_in_one_element(rank, request, store, tell):
    """Rank 0's last element is spoilt after every call."""
    bind = ranks.bind

    def spoilt(*args, **more):
        bound = bind(*args, **more)
        run = bound.run

        def spoil():
            run()
            if rank == 0:
                bound.got[-1] += 1

        object.__setattr__(bound, "run", spoil)
        return bound

    ranks.bind = spoilt
    measure_as(rank, request, store, tell)


def silent(rank, request, store, tell):
    tell("here")
    time.sleep(60)


def one_fails(rank, request, store, tell):
    tell(rank)
    if rank == 1:
        raise ValueError("mine")
    time.sleep(60)


def late(rank, request, store, tell):
    """Rank 1 does not come to the second size."""
    if rank == 1:
        bind = ranks.bind

        def slow(kind, count, /, **more):
            if count > 1024:
                time.sleep(30)
            return bind(kind, count, **more)

        ranks.bind = slow
    measure_as(rank, request, store, tell)


def backends(rank, request, store, tell):
    tell(dist.is_available())
