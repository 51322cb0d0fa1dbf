"""Makes ``conccl`` a backend of torch.distributed."""

from __future__ import annotations

import torch.distributed as dist

from conccl.integrations.process_group import create

NAME = "conccl"


def register_backend() -> None:
    """Make ``init_process_group("conccl")`` and ``new_group(backend="conccl")`` work.

    Every process calls it, once or more often.
    """
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])
