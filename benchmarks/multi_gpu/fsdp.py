"""A training step under FSDP2: stock, with conccl's hooks, and with NCCL's symmetric memory.

Losses go with the times: they are the same for all three, step by step, or something is wrong.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from conccl.core.errors import InputError
from conccl.integrations.fsdp import use_conccl
from ranks import about, kernels, place, save, seconds, started

WARM = 3


class Block(torch.nn.Module):
    """A gated MLP with a residual: a layer's parameters are mostly these."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(hidden)
        self.gate = torch.nn.Linear(hidden, inner, bias=False)
        self.up = torch.nn.Linear(hidden, inner, bias=False)
        self.down = torch.nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] to the same."""
        y = self.norm(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


def work(asked: argparse.Namespace) -> None:
    where = place(asked)
    layers, hidden, inner, rows = (2, 32, 64, 8) if asked.tiny else (8, 8192, 28672, 4096)
    dtype = torch.float32 if where.type == "cpu" else torch.bfloat16
    torch.manual_seed(0)
    model = torch.nn.Sequential()
    mesh = init_device_mesh(where.type, (asked.ranks,))
    for _ in range(layers):
        with where:
            block = Block(hidden, inner).to(dtype)
        model.append(fully_shard(block, mesh=mesh))
    fully_shard(model, mesh=mesh)
    hook(model, asked)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    source = torch.Generator(device=where).manual_seed(dist.get_rank())
    x = torch.randn(rows, hidden, generator=source, device=where).to(dtype)
    losses: list[float] = []

    def step() -> None:
        loss = (model(x) ** 2).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())

    times: list[float] = []
    found: dict[str, Any] = {**about(asked, where), "part": asked.part, "layers": layers, "hidden": hidden}
    for repeat in range(WARM + (3 if asked.tiny else 15)):
        took = seconds(step, where)
        if repeat >= WARM:
            times.append(took)
            save(asked.result, {**found, "seconds": times, "losses": losses})
    seen = kernels(step, where)
    save(asked.result, {**found, "seconds": times, "losses": losses, "kernels": seen})


def hook(model: torch.nn.Module, asked: argparse.Namespace) -> None:
    modules = [one for one in model.modules() if isinstance(one, FSDPModule)]
    if asked.part == "conccl":
        if asked.backend == "nccl":
            raise InputError("conccl's hooks move CPU tensors only so far: there is no transport among GPUs.")
        use_conccl(model, group=dist.new_group(backend="conccl"))
    elif asked.part == "symmetric":
        if asked.backend != "nccl":
            raise InputError("symmetric memory is of NCCL and needs GPUs.")
        if not hasattr(modules[0], "set_symm_mem_for_comm"):
            raise InputError(f"PyTorch {torch.__version__} has no set_symm_mem_for_comm.")
        for one in modules:
            one.set_symm_mem_for_comm()


if __name__ == "__main__":
    sys.exit(started(work))
