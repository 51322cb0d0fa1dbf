"""A transformer's MLP cut over ranks, tensor and sequence parallel, on conccl's CPU backend.

    torchrun --nproc-per-node 2 examples/parallel/tensor_parallel.py

The activations lie cut along the sequence between the layers (sequence parallel): an all_gather before the
first matmul, a reduce_scatter behind the second, and the other way round in the backward pass. Each rank
compares its output and gradients with those of the whole layer on one rank.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

import conccl

TOKENS, HIDDEN, INNER = 64, 32, 128


class Gather(torch.autograd.Function):
    """[tokens / n, hidden] of each rank to [tokens, hidden] on all; its gradient is summed and cut."""

    @staticmethod
    def forward(ctx, mine, group):
        """All ranks' rows, in their order."""
        ctx.group = group
        whole = mine.new_empty(mine.shape[0] * group.size(), *mine.shape[1:])
        conccl.all_gather(whole, mine.contiguous(), group=group)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        """The other way round."""
        mine = gradient.new_empty(gradient.shape[0] // ctx.group.size(), *gradient.shape[1:])
        conccl.reduce_scatter(mine, gradient.contiguous(), group=ctx.group)
        return mine, None


class Scatter(torch.autograd.Function):
    """Partial sums [tokens, hidden] of each rank to [tokens / n, hidden]; its gradient is gathered."""

    @staticmethod
    def forward(ctx, partial, group):
        """This rank's rows of the sum."""
        ctx.group = group
        mine = partial.new_empty(partial.shape[0] // group.size(), *partial.shape[1:])
        conccl.reduce_scatter(mine, partial.contiguous(), group=group)
        return mine

    @staticmethod
    def backward(ctx, gradient):
        """The other way round."""
        whole = gradient.new_empty(gradient.shape[0] * ctx.group.size(), *gradient.shape[1:])
        conccl.all_gather(whole, gradient.contiguous(), group=ctx.group)
        return whole, None


class ParallelMlp(nn.Module):
    """One rank's columns of the first layer and the rows of the second that belong to them."""

    def __init__(self, whole: nn.Sequential, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        rank, count = group.rank(), group.size()
        self.up = nn.Parameter(whole[0].weight.detach().chunk(count, 0)[rank].clone())
        self.down = nn.Parameter(whole[2].weight.detach().chunk(count, 1)[rank].clone())

    def forward(self, mine: torch.Tensor) -> torch.Tensor:
        """[tokens / n, hidden] to [tokens / n, hidden]."""
        inner = nn.functional.gelu(Gather.apply(mine, self.group) @ self.up.T)
        return Scatter.apply(inner @ self.down.T, self.group)


def main() -> None:
    """Run both, compare, and say how the collectives were carried out."""
    conccl.register_backend()
    dist.init_process_group("conccl")
    group, rank, count = dist.group.WORLD, dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    whole = nn.Sequential(
        nn.Linear(HIDDEN, INNER, bias=False), nn.GELU(), nn.Linear(INNER, HIDDEN, bias=False)
    )
    tokens = torch.randn(TOKENS, HIDDEN)

    parallel = ParallelMlp(whole, group)
    mine = tokens.chunk(count)[rank].clone().requires_grad_()
    output = parallel(mine)
    output.square().sum().backward()

    given = tokens.clone().requires_grad_()
    want = whole(given)
    want.square().sum().backward()
    for what, got, wanted in (
        ("output", output, want.chunk(count)[rank]),
        ("gradient of the input", mine.grad, given.grad.chunk(count)[rank]),
        ("gradient of the first layer", parallel.up.grad, whole[0].weight.grad.chunk(count, 0)[rank]),
        ("gradient of the second layer", parallel.down.grad, whole[2].weight.grad.chunk(count, 1)[rank]),
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        if rank == 0:
            print(f"{what}: the same as on one rank, {tuple(got.shape)} on each of {count}")
    if rank == 0:
        print(f"all_gather by {group.explain('all_gather', TOKENS * HIDDEN * 4)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
