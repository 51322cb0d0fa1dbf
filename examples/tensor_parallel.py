"""A tensor-parallel MLP trained by fused operators, beside the same MLP on one process.

    python examples/tensor_parallel.py

Two processes hold half of each layer. Activations outside of the MLP are rows of one rank alone (sequence
parallelism), so its first layer gathers rows while it multiplies, and its second one scatters sums while it
makes them. On GPUs only two lines change: the backend is "nccl", and tensors are on "cuda".
"""

from __future__ import annotations

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import conccl

WIDTH, INNER, ROWS, STEPS = 64, 256, 96, 5


def layers() -> tuple[nn.Linear, nn.Linear]:
    """The whole MLP, the same in every process."""
    torch.manual_seed(0)
    return nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)


def train(model: nn.Module, x: torch.Tensor, wanted: torch.Tensor) -> list[float]:
    """The sums of squared errors of some steps of gradient descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    losses = []
    for _ in range(STEPS):
        loss = (model(x) - wanted).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def rank_main(rank: int, ranks: int, folder: str, way: str) -> None:
    """What each process does."""
    torch.set_num_threads(1)
    conccl.register_backend()
    dist.init_process_group("conccl", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    up, down = layers()
    whole = nn.Sequential(up, nn.GELU(), down)
    split = nn.Sequential(
        conccl.ColumnParallelLinear.split(up, sequence_parallel=True, activation="gelu", way=way),
        conccl.RowParallelLinear.split(down, sequence_parallel=True, way=way),
    )
    x, wanted = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)
    losses = train(split, x.chunk(ranks)[rank], wanted.chunk(ranks)[rank])
    for loss in losses:
        dist.all_reduce(loss)  # of this rank's rows -> of all
    reference = train(whole, x, wanted)
    torch.testing.assert_close(losses, reference, rtol=1e-5, atol=0)
    torch.testing.assert_close(split[0].weight, up.weight.chunk(ranks)[rank])
    torch.testing.assert_close(split[1].weight, down.weight.chunk(ranks, 1)[rank])
    torch.testing.assert_close(split[1].bias, down.bias)
    if rank == 0:
        print(f"{ranks} ranks, {way}: losses " + ", ".join(f"{loss:.2f}" for loss in losses))
        print("whole model: losses " + ", ".join(f"{loss:.2f}" for loss in reference))
    dist.destroy_process_group()


def main() -> None:
    """Start the processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--way", default="chunked:3")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, args=(arguments.ranks, folder, arguments.way), nprocs=arguments.ranks, join=True)


if __name__ == "__main__":
    main()
