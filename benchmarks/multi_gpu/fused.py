"""Fused operators beside serial ones and PyTorch's symmetric-memory ones; ways take turns in every repeat.

A first call of each way is compared with float64 of the same operands; a way that fails or is wrong is left
out with its reason. Tensor-parallel shapes of Llama-3-70B and 405B, rows in all.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import conccl
from ranks import about, kernels, place, save, seconds, started

SHAPES = (
    ("llama3-70b down", 8192, 8192, 14336),
    ("llama3-70b down, 1024 rows", 1024, 8192, 14336),
    ("llama3-70b attention output", 8192, 8192, 4096),
    ("llama3-405b down", 8192, 16384, 26624),
)
TINY = (("tiny", 64, 32, 16),)
WAYS = {
    "chunked": ("serial", "chunked:2", "chunked:4", "chunked:4:shrinking", "auto"),
    "tracked": ("serial", "tracked:4"),
    "torch": ("serial", "torch"),
}
"""Part -> ways, each part a process: a way that hangs costs its own part."""
CALLS = ("gemm_reduce_scatter", "all_gather_gemm")


def work(asked: argparse.Namespace) -> None:
    where = place(asked)
    found: dict[str, Any] = {**about(asked, where), "rows": []}
    for name, m, n, k in TINY if asked.tiny else SHAPES:
        for call in CALLS:
            row = measured(call, m, n, k, where, ways=WAYS[asked.part], repeats=3 if asked.tiny else 15)
            found["rows"].append({"shape": name, "call": call, "m": m, "n": n, "k": k, **row})
            save(asked.result, found)


def measured(
    call: str, m: int, n: int, k: int, where: torch.device, *, ways: tuple[str, ...], repeats: int
) -> dict[str, Any]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dtype = torch.bfloat16 if where.type == "cuda" else torch.float32
    source = torch.Generator(device=where).manual_seed(rank)
    rows = m if call == "gemm_reduce_scatter" else m // ranks
    x = torch.randn(rows, k, generator=source, device=where).to(dtype)
    weight = torch.randn(n, k, generator=source, device=where).to(dtype) * k**-0.5
    wanted = right(call, x, weight)
    calls: dict[str, Callable[[], torch.Tensor]] = {}
    reasons, proof = {}, {}
    for way in ways:
        run = call_of(call, x, weight, way)
        reason = ""
        try:
            error = (run().double() - wanted).abs().max().item() / wanted.abs().max().item()
            if not error < (2e-2 if dtype is torch.bfloat16 else 1e-5):
                reason = f"wrong: largest error {error:.2g} of the largest value"
        except Exception as error:  # PyTorch's own raise anything
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        told: list[str] = [""] * ranks
        dist.all_gather_object(told, reason)
        reason = next((one for one in told if one), "")
        if reason:
            reasons[way] = reason
        else:
            calls[way] = run
            proof[way] = kernels(run, where)
    del wanted
    times: dict[str, list[float]] = {way: [] for way in calls}
    names = list(calls)
    for repeat in range(repeats):
        for way in names[repeat % len(names) :] + names[: repeat % len(names)]:
            times[way].append(seconds(calls[way], where))
    speedups = {
        way: statistics.median(a / b for a, b in zip(times["serial"], some, strict=True))
        for way, some in times.items()
        if "serial" in times
    }
    return {"seconds": times, "speedup_over_serial": speedups, "left_out": reasons, "kernels": proof}


def call_of(call: str, x: torch.Tensor, weight: torch.Tensor, way: str) -> Callable[[], torch.Tensor]:
    if way != "torch":
        return lambda: getattr(conccl, call)(x, weight, way=way)
    return lambda: torch_symmetric(call, x, weight)


def torch_symmetric(call: str, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if x.device.type != "cuda":
        raise NotImplementedError("PyTorch's fused operators take CUDA tensors only")
    import torch.distributed._symmetric_memory as symmetric  # noqa: PLC0415 (registers the operators)

    group = dist.group.WORLD.group_name
    symmetric.enable_symm_mem_for_group(group)
    if call == "gemm_reduce_scatter":
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(x, weight.t(), "sum", 0, group)
    return torch.ops.symm_mem.fused_all_gather_matmul(x, [weight.t()], 0, group)[1][0]


def right(call: str, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """By float64 and the group's plain collectives."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    if call == "gemm_reduce_scatter":
        whole = x.double() @ weight.double().t()
        dist.all_reduce(whole)
        return whole.chunk(ranks)[rank].clone()
    parts = [torch.empty_like(x) for _ in range(ranks)]
    dist.all_gather(parts, x)
    return torch.cat(parts).double() @ weight.double().t()


if __name__ == "__main__":
    sys.exit(started(work))
