"""What the measuring scripts share: ranks of one host, times of a call, and names of kernels as proof."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import conccl
from conccl.core.errors import ConcclError

WAIT = timedelta(seconds=20)


def started(work: Callable[[argparse.Namespace], None]) -> int:
    """Run ``work(arguments)`` as ranks; 2 where it cannot be done here, with a reason on stderr."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--part", default="")
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    asked.result.unlink(missing_ok=True)
    if asked.backend == "nccl" and torch.cuda.device_count() < asked.ranks:
        print(f"{asked.ranks} GPUs are needed; PyTorch sees {torch.cuda.device_count()}.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        try:
            mp.spawn(_rank, args=(asked, folder, work), nprocs=asked.ranks)
        except mp.ProcessExitedException as error:
            refused = error.exit_code == 2
            print("" if refused else str(error), file=sys.stderr)
            return 2 if refused else 1
    return 0


def _rank(rank: int, asked: argparse.Namespace, folder: str, work: Callable[..., None]) -> None:
    conccl.register_backend()
    device = {}
    if asked.backend == "nccl":
        torch.cuda.set_device(rank)
        device["device_id"] = torch.device("cuda", rank)
    dist.init_process_group(
        asked.backend,
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=asked.ranks,
        timeout=WAIT,
        **device,
    )
    try:
        work(asked)
    except (ConcclError, NotImplementedError) as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), file=sys.stderr, flush=True)
        sys.exit(2)
    dist.destroy_process_group()


def place(asked: argparse.Namespace) -> torch.device:
    return (
        torch.device("cuda", torch.cuda.current_device()) if asked.backend == "nccl" else torch.device("cpu")
    )


def seconds(call: Callable[[], Any], where: torch.device) -> float:
    """From a barrier to the last rank's end."""
    dist.barrier()
    _settle(where)
    began = time.perf_counter()
    call()
    _settle(where)
    took = torch.tensor([time.perf_counter() - began], device=where)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return float(took)


def kernels(call: Callable[[], Any], where: torch.device) -> list[str]:
    """What the GPU ran, by the profiler, without GEMMs' parameters; on CPUs the ops of communication."""
    kind = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kind.CUDA] if where.type == "cuda" else [kind.CPU]) as seen:
        call()
        _settle(where)
    names = sorted({event.key.partition("<")[0] for event in seen.key_averages()})
    if where.type == "cpu":
        names = [one for one in names if any(word in one for word in ("gloo", "c10d", "conccl"))]
    return names[:40]


def save(path: Path, found: Any) -> None:
    """At once and whole: a process that is ended leaves what it had."""
    if dist.get_rank() == 0:
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps(found, indent=1) + "\n")
        beside.replace(path)


def about(asked: argparse.Namespace, where: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if where.type == "cuda" else "cpu"
    return {"device": name, "torch": torch.__version__, "backend": asked.backend, "ranks": asked.ranks}


def _settle(where: torch.device) -> None:
    if where.type == "cuda":
        torch.cuda.synchronize()
