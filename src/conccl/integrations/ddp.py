"""DDP with conccl's all_reduce: a communication hook.

DDP looks at a hook's annotations and wants the types themselves, so they are not postponed here.
"""

from typing import Any

import torch
import torch.distributed as dist

from conccl.integrations.functions import all_reduce, conccl_group


def allreduce_hook(
    group: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """``model.register_comm_hook(group, allreduce_hook)``: gradients averaged by a conccl group.

    Divides first and adds then, as DDP does without a hook. ``group`` None is the default group.
    """
    to = conccl_group(group)
    buffer = bucket.buffer()
    buffer.div_(to.size())
    work = all_reduce(buffer, group=to, async_op=True)
    assert work is not None
    future: torch.futures.Future[torch.Tensor] = work.get_future().then(_first)
    return future


def _first(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
    return future.value()[0]
