"""A mixture of experts with one expert a rank: tokens travel to their expert and back by all_to_all.

    torchrun --nproc-per-node 2 examples/parallel/expert_parallel.py

How many tokens each rank sends to each expert differs from step to step, so the counts go first. The counts
and the tokens of the next micro-batch are sent while the experts work on this one (async_op=True). Each rank
compares its result with all experts applied on one rank.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

import conccl

TOKENS, HIDDEN, BATCHES = 50, 16, 3


class Dispatch:
    """Tokens of a micro-batch on their way to their experts."""

    def __init__(self, tokens: torch.Tensor, expert: torch.Tensor, count: int) -> None:
        self.order = expert.argsort(stable=True)
        """Tokens in the order of their experts."""
        self.sent = torch.bincount(expert, minlength=count)
        self.got = torch.empty_like(self.sent)
        conccl.all_to_all(self.got, self.sent)
        self.arrived = tokens.new_empty(int(self.got.sum()), tokens.shape[1])
        self.work = conccl.all_to_all(
            self.arrived,
            tokens[self.order].contiguous(),
            output_split_sizes=self.got.tolist(),
            input_split_sizes=self.sent.tolist(),
            async_op=True,
        )

    def back(self, results: torch.Tensor) -> torch.Tensor:
        """The experts' results, sent home and put in the tokens' order."""
        home = results.new_empty(int(self.sent.sum()), results.shape[1])
        conccl.all_to_all(
            home, results, output_split_sizes=self.sent.tolist(), input_split_sizes=self.got.tolist()
        )
        return torch.empty_like(home).index_copy_(0, self.order, home)


def main() -> None:
    """Send, compute, send back, compare."""
    conccl.register_backend()
    dist.init_process_group("conccl")
    rank, count = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    experts = [nn.Linear(HIDDEN, HIDDEN) for _ in range(count)]
    router = nn.Linear(HIDDEN, count)
    source = torch.Generator().manual_seed(100 + rank)
    batches = [torch.randn(TOKENS, HIDDEN, generator=source) for _ in range(BATCHES)]

    with torch.no_grad():
        chosen = [router(tokens).argmax(1) for tokens in batches]
        coming = Dispatch(batches[0], chosen[0], count)
        for number, tokens in enumerate(batches):
            now = coming
            now.work.wait()
            if number + 1 < BATCHES:
                coming = Dispatch(batches[number + 1], chosen[number + 1], count)
            results = now.back(experts[rank](now.arrived))
            want = torch.stack(
                [experts[one](token) for one, token in zip(chosen[number].tolist(), tokens, strict=True)]
            )
            torch.testing.assert_close(results, want, rtol=1e-4, atol=1e-5)
            if rank == 0:
                sent, got = now.sent.tolist(), now.got.tolist()
                print(f"micro-batch {number}: sent {sent}, received {got}, results the same as on one rank")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
