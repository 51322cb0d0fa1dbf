"""The backend conccl against gloo, on CPU tensors of one host, in the same processes and the same run.

Each round times one call of either backend, in an order drawn at random and the same on all ranks, after a
barrier of its own; the time of a call is the longest over the ranks. Medians over the rounds. Every size is
checked in both backends. Prints a table; ``--json FILE`` writes all samples.

    python benchmarks/host_transport.py --ranks 2 --json benchmarks/2026-11-30-host-transport-2.json.gz
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import conccl
from conccl.core.kinds import CollectiveKind
from conccl.core.metrics import busbw

KINDS = ("all_gather", "all_to_all", "reduce_scatter", "all_reduce")
SIZES = {8: 20, 1 << 20: 20, 16 << 20: 6}
"""Bytes as nccl-tests counts them -> rounds."""


def tensors(kind, nbytes, count, rank):
    numel = max(count, nbytes // 4 // count * count)
    share = numel // count
    given = torch.full((share if kind == "all_gather" else numel,), float(rank + 1))
    out = torch.zeros(share if kind == "reduce_scatter" else numel)
    return given, out


def call(kind, given, out, group):
    if kind == "all_gather":
        dist.all_gather_into_tensor(out, given, group=group)
    elif kind == "all_to_all":
        dist.all_to_all_single(out, given, group=group)
    elif kind == "reduce_scatter":
        dist.reduce_scatter_tensor(out, given, group=group)
    else:
        dist.all_reduce(out, group=group)


def is_right(kind, out, count):
    if kind in ("all_gather", "all_to_all"):
        blocks = out.view(count, -1)
        return all(bool((blocks[one] == one + 1).all()) for one in range(count))
    return bool((out == sum(range(1, count + 1))).all())


def measure(rank, count, folder, out_path):
    warnings.simplefilter("ignore")  # PyTorch 2.13 has new names for these calls, 2.11 has not
    torch.set_num_threads(1)
    conccl.register_backend()
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    groups = {"gloo": None, "conccl": dist.new_group(backend="conccl")}
    order = random.Random(0)
    rows = []
    for nbytes, rounds in SIZES.items():
        for kind in KINDS:
            samples = {name: [] for name in groups}
            right = dict.fromkeys(groups, True)
            given, out = tensors(kind, nbytes, count, rank)
            for number in range(rounds + 3):
                names = list(groups)
                order.shuffle(names)
                for name in names:
                    out.copy_(given) if kind == "all_reduce" else out.zero_()
                    dist.barrier(group=groups[name])
                    begin = time.perf_counter()
                    call(kind, given, out, groups[name])
                    took = time.perf_counter() - begin
                    right[name] &= is_right(kind, out, count)
                    if number >= 3:
                        samples[name].append(took)
            longest = {}
            for name, own in samples.items():
                told = torch.tensor(own, dtype=torch.float64)
                dist.all_reduce(told, dist.ReduceOp.MAX)
                longest[name] = told.tolist()
            ok = torch.tensor([int(right[name]) for name in groups])
            dist.all_reduce(ok, dist.ReduceOp.MIN)
            rows.append(
                {
                    "kind": kind,
                    "nbytes": given.nbytes * count if kind == "all_gather" else given.nbytes,
                    "right": dict(zip(groups, map(bool, ok.tolist()), strict=True)),
                    "seconds": longest,
                }
            )
    if rank == 0:
        Path(out_path).write_text(json.dumps(rows))
    dist.destroy_process_group()


def table(rows, count):
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"# {count} ranks, {cores} cores, load {load:.1f}, torch {torch.__version__}")
    columns = "conccl us | gloo us | conccl busbw GB/s | gloo busbw GB/s | gloo / conccl | right"
    print(f"| collective | bytes | {columns} |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        median = {name: statistics.median(own) for name, own in row["seconds"].items()}
        bus = {
            name: busbw(kind=CollectiveKind(row["kind"]), nbytes=row["nbytes"], ranks=count, time_ns=t * 1e9)
            / 1e9
            for name, t in median.items()
        }
        print(
            f"| {row['kind']} | {row['nbytes']} | {median['conccl'] * 1e6:.0f} | {median['gloo'] * 1e6:.0f}"
            f" | {bus['conccl']:.2f} | {bus['gloo']:.2f} | {median['gloo'] / median['conccl']:.2f}"
            f" | {'yes' if all(row['right'].values()) else 'NO'} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/rows.json"
        mp.spawn(measure, (given.ranks, folder, out), given.ranks)
        rows = json.loads(Path(out).read_text())
    table(rows, given.ranks)
    if given.json:
        given.json.write_bytes(
            gzip.compress(json.dumps({"ranks": given.ranks, "rows": rows}).encode(), mtime=0)
        )


if __name__ == "__main__":
    main()
